"use strict";
// The network as a graph: laid out by dagre, drawn as SVG, moved by pointer, wheel and keys.
const NAMESPACE = "http://www.w3.org/2000/svg";

// An element of SVG with attributes, and text as text.
function draw(tag, attributes = {}, text = null) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

function shorten(text, most) {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

// The ops of a node with the ends of their names, which tell them apart: exporters begin all alike.
function nameOps(node, most) {
  if (!node.ops.length) return node.label;
  return node.ops.map((op) => {
    const [kind, ...rest] = op.split(" ");
    const name = rest.join(" ");
    return name.length > most ? `${kind} …${name.slice(1 - most)}` : op;
  }).join(", ");
}

class NetworkGraph {
  static WIDTH = 190;
  static HEIGHT = 40;

  constructor(canvas, nodes, edges, choose) {
    this.canvas = canvas;
    this.nodes = nodes;
    this.choose = choose;
    this.view = { x: 0, y: 0, scale: 1 };
    this.pointers = new Map();
    this.readers = new Map(nodes.map((node) => [node.id, []]));
    this.makers = new Map(nodes.map((node) => [node.id, []]));
    for (const [from, to] of edges) {
      this.readers.get(from).push(to);
      this.makers.get(to).push(from);
    }
    // what is joined to nothing, such as what clears the rim of a map, is in the list of steps alone
    this.drawn = nodes.filter((n) => this.readers.get(n.id).length || this.makers.get(n.id).length || nodes.length < 3);
    this.layOut(edges);
    this.drawAll(edges);
    this.listen();
    this.fit();
  }

  layOut(edges) {
    const graph = new dagre.graphlib.Graph().setGraph({ rankdir: "TB", nodesep: 24, ranksep: 34, ranker: "longest-path" });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const node of this.drawn) graph.setNode(node.id, { width: NetworkGraph.WIDTH, height: NetworkGraph.HEIGHT });
    for (const [from, to] of edges) graph.setEdge(from, to);
    dagre.layout(graph);
    this.layout = graph;
  }

  drawAll(edges) {
    this.world = draw("g");
    this.shapes = new Map();
    this.lines = [];
    for (const [from, to] of edges) {
      const points = this.layout.edge(from, to).points.map((p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`);
      const line = draw("polyline", { points: points.join(" "), class: "edge" });
      this.lines.push({ from, to, line });
      this.world.append(line);
    }
    for (const node of this.drawn) {
      const { x, y } = this.layout.node(node.id);
      const shape = draw("g", {
        class: node.kind === "input" ? "node plain" : "node",
        transform: `translate(${x - NetworkGraph.WIDTH / 2},${y - NetworkGraph.HEIGHT / 2})`,
      });
      shape.dataset.id = node.id;
      shape.append(
        draw("rect", { width: NetworkGraph.WIDTH, height: NetworkGraph.HEIGHT, rx: 7 }),
        draw("text", { x: 9, y: 17 }, shorten(nameOps(node, 18), 27)),
        draw("text", { x: 9, y: 32, class: "sub" }, shorten([node.kernel, node.shape].filter(Boolean).join("  "), 31)),
        draw("title", {}, node.text),
      );
      this.shapes.set(node.id, shape);
      this.world.append(shape);
    }
    this.canvas.append(this.world);
  }

  paint(colourOf) {
    for (const node of this.drawn) {
      const rect = this.shapes.get(node.id).firstChild;
      rect.style.fill = node.kind === "input" ? "var(--line)" : colourOf(node);
    }
  }

  show() {
    const { x, y, scale } = this.view;
    this.world.setAttribute("transform", `translate(${x},${y}) scale(${scale})`);
  }

  fit() {
    const { width, height } = this.layout.graph();
    const box = this.canvas.getBoundingClientRect();
    if (!(width > 0) || !box.width) return;
    // a long network is shown from its beginning, large enough to be read
    const whole = Math.min(box.width / (width + 40), box.height / (height + 40));
    const scale = Math.min(Math.max(whole, Math.min(0.55, box.width / (width + 40))), 1.2);
    this.view = { x: (box.width - width * scale) / 2, y: height * scale < box.height ? (box.height - height * scale) / 2 : 14, scale };
    this.show();
  }

  // Keep what is in the middle there when the canvas becomes narrower or wider.
  recentre(width) {
    this.move((this.canvas.getBoundingClientRect().width - width) / 2, 0);
  }

  zoom(factor, x, y) {
    const box = this.canvas.getBoundingClientRect();
    const [px, py] = [x ?? box.width / 2, y ?? box.height / 2];
    const scale = Math.min(Math.max(this.view.scale * factor, 0.02), 4);
    const ratio = scale / this.view.scale;
    this.view = { x: px - (px - this.view.x) * ratio, y: py - (py - this.view.y) * ratio, scale };
    this.show();
  }

  move(dx, dy) {
    this.view.x += dx;
    this.view.y += dy;
    this.show();
  }

  // Mark a node with its edges, and bring it into view: of a canvas that is covered from below by so much.
  mark(id, bring, covered = 0) {
    for (const shape of this.shapes.values()) shape.classList.toggle("chosen", shape.dataset.id === id);
    for (const { from, to, line } of this.lines) line.classList.toggle("near", from === id || to === id);
    this.chosen = id;
    const place = this.shapes.has(id) && this.layout.node(id);
    if (!place || !bring) return;
    const box = this.canvas.getBoundingClientRect();
    const scale = Math.max(this.view.scale, 0.6);
    this.view = { x: box.width / 2 - place.x * scale, y: (box.height - covered) / 2 - place.y * scale, scale };
    this.show();
  }

  // The nodes whose texts contain what is searched.
  search(text) {
    const wanted = text.trim().toLowerCase();
    const found = [];
    for (const node of this.nodes) {
      const words = [node.label, node.text, node.kernel, node.region, ...node.ops].join(" ").toLowerCase();
      const match = wanted !== "" && words.includes(wanted);
      if (match) found.push(node.id);
      this.shapes.get(node.id)?.classList.toggle("match", match);
    }
    this.canvas.classList.toggle("searching", wanted !== "");
    return found;
  }

  // The node that an arrow leads to.
  step(key) {
    if (!this.chosen) return this.drawn[0]?.id;
    if (key === "ArrowDown") return this.readers.get(this.chosen)[0];
    if (key === "ArrowUp") return this.makers.get(this.chosen)[0];
    const parent = this.makers.get(this.chosen)[0];
    const beside = parent ? this.readers.get(parent) : this.drawn.map((node) => node.id);
    const at = beside.indexOf(this.chosen) + (key === "ArrowRight" ? 1 : -1);
    return beside[(at + beside.length) % beside.length];
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      this.moved = 0;
      this.pressed = event.target.closest(".node")?.dataset.id;
    });
    window.addEventListener("pointermove", (event) => this.drag(event));
    window.addEventListener("pointerup", (event) => {
      const here = this.pointers.delete(event.pointerId);
      if (here && this.moved < 5 && this.pressed) this.choose(this.pressed);
    });
    window.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
  }

  drag(event) {
    const last = this.pointers.get(event.pointerId);
    if (!last) return;
    const [dx, dy] = [event.clientX - last.x, event.clientY - last.y];
    const others = [...this.pointers.entries()].filter(([id]) => id !== event.pointerId);
    if (others.length) { // two fingers
      const other = others[0][1];
      const before = Math.hypot(last.x - other.x, last.y - other.y);
      const after = Math.hypot(event.clientX - other.x, event.clientY - other.y);
      const box = this.canvas.getBoundingClientRect();
      if (before > 0) this.zoom(after / before, (event.clientX + other.x) / 2 - box.left, (event.clientY + other.y) / 2 - box.top);
    } else {
      this.move(dx, dy);
    }
    this.moved += Math.hypot(dx, dy);
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  }
}
