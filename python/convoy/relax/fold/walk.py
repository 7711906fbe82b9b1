"""A walk over one Relax function that rewrites it front to back.

The walk holds what the folds have in common: which bindings are alive, how often each
variable is used, which variables are constants. A subclass says which bindings it
understands (``interpret``) and how a variable it holds back gets its binding (``force``).

Variables keep their identity: a variable of the old function is bound at most once in the new
one, to a value of the same type. So what no fold understands (calls of other functions, branches,
tuples) is kept as it stands; only its operands are forced first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tvm import IRModule, relax
from tvm.ir import Call, Expr, GenericConst, TupleGetItem, Var
from tvm.ir import Tuple as TupleExpr

from convoy.fold.constants import Const, evaluate
from convoy.relax.blocks import may_write
from convoy.relax.fold.constants import read_literal, write_constant
from convoy.relax.fold.node import read_node
from convoy.relax.no_touch import is_open


def operands(value: Expr) -> Iterator[Var]:
    """The variables a bound value reads, each as often as it is read."""
    if isinstance(value, Var):
        yield value
    elif isinstance(value, Call):
        if isinstance(value.op, Var):
            yield value.op
        for argument in value.args:
            yield from operands(argument)
    elif isinstance(value, TupleExpr):
        for item in value.fields:
            yield from operands(item)
    elif isinstance(value, TupleGetItem):
        yield from operands(value.tuple_value)
    elif isinstance(value, (relax.If, relax.SeqExpr, relax.Function)):
        yield from relax.analysis.free_vars(value)


class Walk:
    """Rewrites functions of one module; see the head of this file."""

    def __init__(self, module: IRModule) -> None:
        self.builder = relax.BlockBuilder(module)
        self.uses: Counter[Var] = Counter()
        self.constants: dict[Var, Const] = {}
        self._projections: dict[Var, Counter[int]] = {}
        self._tuples: dict[Var, TupleExpr] = {}
        self._twins: dict[Var, Var] = {}
        """For an item taken out of its tuple again, the variable that holds it already."""
        self._out: list[relax.Binding] = []
        self._new_var: type[Var] = relax.DataflowVar
        """The kind that the block's own variables are of."""
        self._old: dict[Var, relax.Binding] = {}
        """The bindings of the block as they came."""

    # What a fold provides.

    def interpret(self, var: Var, value: Expr) -> bool:
        """Take the binding over; False leaves it as it is."""
        raise NotImplementedError

    def force(self, var: Var) -> None:
        """Bind ``var`` now, if it was held back."""
        raise NotImplementedError

    def held(self) -> list[Var]:
        """Variables taken over and not bound yet, oldest first."""
        raise NotImplementedError

    def substitute(self, var: Var) -> Expr:
        """What a call reads in place of ``var``."""
        return var

    # What the walk provides.

    def rewrite(self, function: relax.Function) -> relax.Function:
        """The same function, folded; the very same object if nothing changed."""
        if not is_open(function) or not isinstance(function.body, relax.SeqExpr):
            return function
        body = function.body
        live, escaping = self._survey(body)
        blocks = []
        changed = False
        for block in body.blocks:
            self._out = []
            self._new_var = relax.DataflowVar if isinstance(block, relax.DataflowBlock) else relax.Var
            self._old = {binding.var: binding for binding in block.bindings}
            for binding in block.bindings:
                if binding.var in live:
                    self._visit(binding)
            for var in [v for v in self.held() if v in escaping]:
                self.force(var)
            for var in [v for v in self.constants if v in escaping]:
                self._bind_constant(var)
            self.let_go()
            self.close_block()
            same = len(self._out) == len(block.bindings) and all(
                new.same_as(old) for new, old in zip(self._out, block.bindings, strict=True)
            )
            changed |= not same
            blocks.append(block if same else type(block)(self._out, block.span))
        if not changed:
            return function
        return relax.Function(
            function.params,
            self.builder.normalize(relax.SeqExpr(blocks, body.body, body.span)),
            function.ret_ty,
            function.is_pure,
            function.attrs,
            function.span,
        )

    def close_block(self) -> None:
        """Forget what must not be seen by later blocks, nor behind what may write."""

    def let_go(self) -> None:
        """Bind tuples whose items would be computed where they are taken: in another block, or too late."""

    def bind(self, value: Expr, var: Var | None = None, near: Var | None = None) -> Var:
        """Append ``var = value`` (a fresh variable of the block, named like ``near``, if none is given)."""
        old = self._old.get(var) if var is not None else None
        if old is not None and old.value.same_as(value):
            self._out.append(old)
            return old.var
        value = self.builder.normalize(value)
        if var is None:
            var = self._new_var("lv" if near is None else near.name, value.ty)
        self._out.append(relax.VarBinding(var, value))
        return var

    def keep(self, binding: relax.Binding) -> None:
        """Append a binding no fold understands, its operands forced and constants in place."""
        value = binding.value
        flat = isinstance(value, (Var, Call, TupleExpr)) and isinstance(binding, relax.VarBinding)
        for var in operands(value):
            if var in self.constants:
                if not flat:
                    self._bind_constant(var)
            elif not flat or self.substitute(var).same_as(var):
                self.force(var)
        if may_write(value):  # what is read before must not be read behind
            for var in self.held():
                self.force(var)
            self.let_go()
            self.close_block()
        inlined = self.inline(value) if flat else value
        if inlined.same_as(value):
            self._out.append(binding)
        else:
            self.bind(inlined, binding.var)

    def constant(self, value: Expr) -> Const | None:
        """The constant ``value`` is, literally or through a variable."""
        if isinstance(value, GenericConst):
            return read_literal(value)
        return self.constants.get(value) if isinstance(value, Var) else None

    def _visit(self, binding: relax.Binding) -> None:
        if isinstance(binding, relax.VarBinding):
            if (first := self._twins.get(binding.var)) is not None:
                binding = relax.VarBinding(binding.var, first)
            binding = self._see_through_tuple(binding)
            if isinstance(binding.value, TupleExpr) and self.only_projected(binding.var):
                self._tuples[binding.var] = binding.value
                return
            constant = self._evaluate(binding)
            if constant is not None:
                self.constants[binding.var] = constant
                return
            if self.interpret(binding.var, binding.value):
                return
        self.keep(binding)

    def _evaluate(self, binding: relax.VarBinding) -> Const | None:
        if not isinstance(binding.value, Call):
            return self.constant(binding.value)
        node = read_node(binding.value, binding.var)
        return None if node is None else evaluate(node, self.constant)

    def only_projected(self, var: Var) -> bool:
        """Whether a tuple is only ever read field by field, each field at most once."""
        counts = self._projections.get(var, Counter()).values()
        return sum(counts) == self.uses[var] and all(n == 1 for n in counts)

    def _see_through_tuple(self, binding: relax.VarBinding) -> relax.VarBinding:
        value = binding.value
        if isinstance(value, TupleGetItem) and value.tuple_value in self._tuples:
            return relax.VarBinding(binding.var, self._tuples[value.tuple_value].fields[value.index])
        return binding

    def inline(self, value: Expr) -> Expr:
        """``value`` with constants and substitutes in place of the variables that hold them."""
        if isinstance(value, Var):
            constant = self.constants.get(value)
            return write_constant(constant) if constant is not None else self.substitute(value)
        if isinstance(value, TupleExpr):
            items = [self.inline(item) for item in value.fields]
            same = all(new.same_as(old) for new, old in zip(items, value.fields, strict=True))
            return value if same else TupleExpr(items, value.span)
        if isinstance(value, Call):
            args = [self.inline(argument) for argument in value.args]
            same = all(new.same_as(old) for new, old in zip(args, value.args, strict=True))
            return value if same else Call(value.op, args, value.attrs, value.ty_args, value.span, value.ty)
        return value

    def _bind_constant(self, var: Var) -> None:
        self.bind(write_constant(self.constants.pop(var)), var)

    def _survey(self, body: relax.SeqExpr) -> tuple[set[Var], set[Var]]:
        """Bindings worth keeping, and variables read outside the block that binds them.

        Fills ``uses`` with the reads of live bindings only: a dead reader must not keep a
        convolution from being folded.
        """
        live: set[Var] = set()
        escaping: set[Var] = set()
        self.uses = Counter(operands(body.body))
        self._projections = {}
        self._twins = dict(_items_taken_again(body))
        escaping.update(self.uses)
        for block in reversed(body.blocks):
            inside = {binding.var for binding in block.bindings}
            removable = isinstance(block, relax.DataflowBlock)
            for binding in reversed(block.bindings):
                keep = not removable or isinstance(binding, relax.MatchCast)
                if not keep and not self.uses[binding.var]:
                    continue
                live.add(binding.var)
                value = self._twins.get(binding.var, binding.value)
                if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Var):
                    counts = self._projections.setdefault(value.tuple_value, Counter())
                    counts[value.index] += 1
                for var in operands(value):
                    self.uses[var] += 1
                    if var not in inside or isinstance(value, (relax.If, relax.SeqExpr, relax.Function)):
                        escaping.add(var)
        return live, escaping


def _items_taken_again(body: relax.SeqExpr) -> Iterator[tuple[Var, Var]]:
    """Each variable of an item of a tuple that another holds already, and that other one."""
    first: dict[tuple[Var, int], Var] = {}
    for block in body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Var):
                holds = first.setdefault((value.tuple_value, value.index), binding.var)
                if not holds.same_as(binding.var):
                    yield binding.var, holds
