"""Modules crowded with marked functions: every mark, wherever a function can be and be called from."""

# ruff: noqa: RET504  (TVMScript's functions are read, not run: one op a line, as TVM prints them)

from __future__ import annotations

from functools import cache

from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@cache
def backends() -> IRModule:
    """Two backends' functions, as partitioning leaves them, between ops that passes rewrite.

    ``convoy_block``: public, a Codegen around Composites. ``acme_pair``: private, of tuples, with an
    item that nobody reads. ``acme.tan``: a Composite alone. ``acme_alone``: an entry that nobody calls.
    ``convoy_block`` has two callers.
    """

    @I.ir_module
    class Module:
        I.module_attrs({"marker": "kept"})
        I.module_global_infos({"vdevice": [I.vdevice({"kind": "llvm"}, 0, "global")]})

        @R.function
        def convoy_block(
            x: R.Tensor((1, 4, 8, 8), "float32"), s: R.Tensor((1, 4, 8, 8), "float32")
        ) -> R.Tensor((1, 4, 8, 8), "float32"):
            R.func_attr({"Codegen": "convoy", "convoy_axis_zero": "images"})
            with R.dataflow():

                @R.function
                def convoy_add(
                    a: R.Tensor((1, 4, 8, 8), "float32"), b: R.Tensor((1, 4, 8, 8), "float32")
                ) -> R.Tensor((1, 4, 8, 8), "float32"):
                    R.func_attr({"Composite": "convoy.add"})
                    with R.dataflow():
                        c = R.add(a, b)
                        R.output(c)
                    return c

                y = convoy_add(x, s)
                R.output(y)
            return y

        @R.function(private=True)
        def acme_pair(
            p: R.Tuple(R.Tensor((1, 4, 8, 8), "float32"), R.Tensor((1, 4, 8, 8), "float32")),
            unread: R.Tensor((8, 8), "float32"),
        ) -> R.Tuple(R.Tensor((1, 4, 8, 8), "float32"), R.Tensor((1, 4, 8, 8), "float32")):
            R.func_attr({"Codegen": "acme"})
            with R.dataflow():
                a = p[0]
                dead = R.exp(a)  # noqa: F841
                b = R.add(a, p[1])
                c = R.tan(b)
                R.output(b, c)
            return (b, c)

        @R.function(private=True)
        def acme_tan(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
            R.func_attr({"Composite": "acme.tan", "Primitive": True})
            with R.dataflow():
                y = R.tan(x)
                R.output(y)
            return y

        @R.function
        def acme_alone(x: R.Tensor((1, 4, 8, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
            (1, 4, 8, 8), "float32"
        ):
            R.func_attr({"Codegen": "acme", "num_input": 1})
            with R.dataflow():
                v = R.permute_dims(w)
                y = R.matmul(x, v)
                R.output(y)
            return y

        @R.function(private=True)
        def second(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
            cls = Module
            with R.dataflow():
                y = cls.convoy_block(x, x)
                z = R.exp(y)
                R.output(z)
            return z

        @R.function
        def loss(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((), "float32"):
            with R.dataflow():
                y = R.exp(x)
                z = R.sum(y)
                R.output(z)
            return z

        @R.function
        def main(x: R.Tensor((1, 4, 8, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
            (1, 4, 8, 8), "float32"
        ):
            R.func_attr({"num_input": 1})
            cls = Module
            with R.dataflow():
                e = R.tan(x)
                n = R.permute_dims(w)
                m = R.matmul(e, n)
                a = cls.convoy_block(x, m)
                again = cls.convoy_block(m, a)
                p = cls.acme_pair((a, again), w)
                q = p[1]
                t = cls.acme_tan(q)
                k = R.add(R.const(1.0, "float32"), R.const(2.0, "float32"))
                u = R.multiply(t, k)
                f = R.reshape(u, R.shape([1, 256]))
                g = R.reshape(f, R.shape([1, 4, 8, 8]))
                h = cls.second(g)
                y = R.exp(h)
                R.output(y)
            return y

    return Module


@cache
def scopes() -> IRModule:
    """Marked functions called in branches, and written where they are called."""

    @I.ir_module
    class Module:
        @R.function
        def external(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
            R.func_attr({"Codegen": "convoy"})
            y = R.exp(x)
            return y

        @R.function
        def main(
            x: R.Tensor((1, 4, 8, 8), "float32"), w: R.Tensor((8, 8), "float32"), c: R.Tensor((), "bool")
        ) -> R.Tensor((1, 4, 8, 8), "float32"):
            cls = Module

            @R.function
            def local(a: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
                R.func_attr({"Codegen": "acme"})
                b = R.exp(a)
                d = R.add(b, b)
                return d

            @R.function
            def plain(a: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
                @R.function
                def inner(b: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
                    R.func_attr({"Codegen": "acme"})
                    d = R.tan(b)
                    return d

                e = inner(a)
                f = R.exp(e)
                return f

            p = local(x)
            r = plain(p)
            if c:
                s = cls.external(r)
                t = local(s)
                u = R.exp(t)
                v = u
            else:
                s = R.tan(r)
                v = s
            z = R.matmul(v, w)
            return z

    return Module


@cache
def closures() -> IRModule:
    """Marked functions that read what is around them; plain TVM cannot run them (0.27)."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 8, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
            (1, 4, 8, 8), "float32"
        ):
            m = R.tan(x)
            n = R.exp(m)

            @R.function
            def reading(a: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
                R.func_attr({"Composite": "acme.reading"})
                b = R.add(a, n)
                d = R.add(b, m)
                return d

            @R.function
            def plain(a: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
                k = R.tan(a)

                @R.function
                def inner(b: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
                    R.func_attr({"Codegen": "acme"})
                    d = R.multiply(b, k)
                    return d

                e = inner(a)
                f = reading(e)
                return f

            p = reading(x)
            q = plain(p)
            z = R.matmul(q, w)
            return z

    return Module


@cache
def bound() -> IRModule:
    """Marked functions behind variables, in a tuple and in a branch; one reads what is around it."""

    @I.ir_module
    class Module:
        @R.function(private=True)
        def private(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
            R.func_attr({"Codegen": "acme"})
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            return y

        @R.function(private=True)
        def composite(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
            R.func_attr({"Composite": "acme.tan"})
            with R.dataflow():
                y = R.tan(x)
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((1, 4, 8, 8), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            (1, 4, 8, 8), "float32"
        ):
            cls = Module
            m = R.tan(x)

            @R.function
            def local(a: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
                R.func_attr({"Codegen": "acme"})
                with R.dataflow():
                    b = R.sqrt(a)
                    R.output(b)
                return b

            @R.function
            def reading(a: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
                R.func_attr({"Codegen": "acme"})
                with R.dataflow():
                    b = R.add(a, m)
                    R.output(b)
                return b

            @R.function
            def plain(a: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
                R.func_attr({"Composite": "acme.plain"})
                with R.dataflow():
                    b = R.abs(a)
                    R.output(b)
                return b

            alias = cls.private
            pair = (local, cls.composite)
            p = pair[0](x)
            q = reading(p)
            r = alias(q)
            k = pair[1](r)
            s = plain(k)
            if c:
                t = local(s)
                u = reading(t)
                v = u
            else:
                t = R.exp(s)
                v = t
            return v

    return Module


@cache
def batches() -> IRModule:
    """For any number of images: a global and a local marked function, in dataflow blocks."""

    @I.ir_module
    class Module:
        @R.function(private=True)
        def external(x: R.Tensor(("n", 4, 8, 8), "float32")) -> R.Tuple(
            R.Tensor(("n", 4, 8, 8), "float32"), R.Tensor(("n * 256",), "float32")
        ):
            R.func_attr({"Codegen": "convoy"})
            n = T.int64()
            with R.dataflow():
                y = R.exp(x)
                z = R.reshape(y, R.shape([n * 256]))
                R.output(y, z)
            return (y, z)

        @R.function
        def main(x: R.Tensor(("n", 4, 8, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
            ("n", 4, 8, 8), "float32"
        ):
            n = T.int64()
            cls = Module
            with R.dataflow():

                @R.function
                def local(a: R.Tensor((n, 4, 8, 8), "float32")) -> R.Tensor((n, 4, 8, 8), "float32"):
                    R.func_attr({"Composite": "acme.tan"})
                    with R.dataflow():
                        b = R.tan(a)
                        R.output(b)
                    return b

                e = R.exp(x)
                p = cls.external(e)
                y = local(p[0])
                f = R.reshape(p[1], R.shape([n, 4, 8, 8]))
                g = R.add(y, f)
                h = R.matmul(g, w)
                R.output(h)
            return h

    return Module


@cache
def impure() -> IRModule:
    """Marked functions that have an effect, a global and a local one."""

    @I.ir_module
    class Module:
        @R.function(pure=False)
        def external(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"Codegen": "acme"})
            _ = R.print(x, format="{}")
            y = R.exp(x)
            return y

        @R.function(pure=False)
        def main(x: R.Tensor((8,), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor((8,), "float32"):
            cls = Module

            @R.function(pure=False)
            def local(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
                R.func_attr({"Codegen": "acme"})
                _ = R.print(x, format="{}")
                y = R.exp(x)
                return y

            a = cls.external(x)
            b = local(x)
            c = local(b)
            d = R.add(a, c)
            e = R.matmul(d, w)
            return e

    return Module


@cache
def kernels() -> IRModule:
    """After legalizing: marked functions that call kernels and functions, their own and shared ones."""

    @I.ir_module
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def own(a: T.Buffer((T.int64(8),), "float32"), b: T.Buffer((T.int64(8),), "float32")):
            for i in range(8):
                with T.sblock("own"):
                    v = T.axis.spatial(8, i)
                    b[v] = a[v] + T.float32(1)

        @T.prim_func(private=True, s_tir=True)
        def shared(a: T.Buffer((T.int64(8),), "float32"), b: T.Buffer((T.int64(8),), "float32")):
            for i in range(8):
                with T.sblock("shared"):
                    v = T.axis.spatial(8, i)
                    b[v] = a[v] * T.float32(2)

        @R.function(private=True)
        def helper(x: R.Tensor((8,), "float32"), unread: R.Tensor((8,), "float32")) -> R.Tensor(
            (8,), "float32"
        ):
            y = R.exp(x)
            return y

        @R.function(private=True)
        def external(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"Codegen": "acme"})
            cls = Module
            with R.dataflow():
                a = R.call_tir(cls.own, (x,), out_ty=R.Tensor((8,), "float32"))
                b = R.call_tir(cls.shared, (a,), out_ty=R.Tensor((8,), "float32"))
                c = cls.helper(b, x)
                R.output(c)
            return c

        @R.function
        def main(x: R.Tensor((8,), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor((8,), "float32"):
            cls = Module
            with R.dataflow():
                a = R.call_tir(cls.shared, (x,), out_ty=R.Tensor((8,), "float32"))
                b = cls.external(a)
                c = R.call_tir(cls.shared, (b,), out_ty=R.Tensor((8,), "float32"))
                d = R.matmul(c, w)
                R.output(d)
            return d

    return Module


@cache
def whole() -> IRModule:
    """``main`` itself belongs to a codegen, and calls another's function; so does an entry beside it."""

    @I.ir_module
    class Module:
        @R.function(private=True)
        def acme_exp(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"Composite": "acme.exp"})
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((8,), "float32"), v: R.Tensor((8, 8), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"Codegen": "other"})
            cls = Module
            with R.dataflow():
                a = cls.acme_exp(x)
                b = R.matmul(a, v)
                R.output(b)
            return b

        @R.function
        def entry(x: R.Tensor((8,), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
            (8,), "float32"
        ):
            R.func_attr({"num_input": 1})
            cls = Module
            with R.dataflow():
                a = R.tan(x)
                b = cls.acme_exp(a)
                c = R.matmul(b, w)
                R.output(c)
            return c

    return Module


@cache
def symbolic() -> IRModule:
    """Marked functions with a length in their types that is the host's."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
            ("n", 8), "float32"
        ):
            n = T.int64()

            @R.function
            def wide(a: R.Tensor((8,), "float32")) -> R.Tensor((n, 8), "float32"):
                R.func_attr({"Codegen": "acme"})
                b = R.broadcast_to(a, R.shape([n, 8]))
                return b

            @R.function
            def narrow(a: R.Tensor((n, 8), "float32")) -> R.Tensor((8,), "float32"):
                R.func_attr({"Codegen": "other"})
                b = R.mean(a, axis=[0])
                return b

            c = R.tan(x)
            d = narrow(c)
            e = wide(d)
            f = R.add(e, x)
            g = R.matmul(f, w)
            return g

    return Module


MODULES = {
    "backends": backends,
    "scopes": scopes,
    "closures": closures,
    "bound": bound,
    "batches": batches,
    "kernels": kernels,
    "impure": impure,
    "whole": whole,
    "symbolic": symbolic,
}
