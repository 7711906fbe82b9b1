"use strict";
// The page: its content from the JSON in it, colours, the panel of a node, keys.  Texts are set as text only.
(() => {
  const content = JSON.parse(document.getElementById("content").textContent);
  const at = (id) => document.getElementById(id);
  const nodes = content.nodes;
  const byId = new Map(nodes.map((node) => [node.id, node]));
  document.title = `${content.title} – Convoy`;
  at("title").textContent = content.title;
  for (const text of content.summary) at("summary").append(make("p", "", text));

  // Colours -----------------------------------------------------------------------------------------
  const ranked = (key) => {
    const sums = new Map();
    for (const node of nodes) if (node.kind === "step") sums.set(node[key], (sums.get(node[key]) ?? 0) + timeOf(node) + 1e-12);
    return [...sums.entries()].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  };
  const order = { kernel: ranked("kernel"), region: ranked("region") };
  const most = Math.max(...nodes.map(timeOf), 1e-12);
  const mix = (part) => `color-mix(in oklab, var(--high) ${Math.round(100 * Math.min(part, 1))}%, var(--c0))`;
  const colours = {
    kernel: (node) => (node.kind === "step" ? `var(--c${order.kernel.indexOf(node.kernel) % 12})` : "var(--tvm)"),
    region: (node) => (node.kind === "step" ? `var(--c${order.region.indexOf(node.region) % 12})` : "var(--tvm)"),
    time: (node) => (timeOf(node) ? mix(Math.sqrt(timeOf(node) / most)) : "var(--tvm)"),
    share: (node) => (node.share == null ? "var(--tvm)" : mix(1 - node.share)),
  };
  const legends = {
    kernel: () => [...order.kernel.map((name, i) => [`var(--c${i % 12})`, name]), ["var(--tvm)", "TVM"]],
    region: () => [...order.region.map((name, i) => [`var(--c${i % 12})`, name]), ["var(--tvm)", "TVM"]],
    time: () => [[mix(0), "0"], [mix(1), asTime(most)]],
    share: () => [[mix(0), "100 % of the roof"], [mix(1), "0 %"]],
  };
  function paint() {
    const by = at("colour").value;
    graph?.paint(colours[by]);
    at("legend").replaceChildren(...legends[by]().map(([colour, text]) => {
      const entry = make("span");
      const square = make("i");
      square.style.background = colour;
      entry.append(square, text);
      return entry;
    }));
  }

  // The panel of a node -----------------------------------------------------------------------------
  function list(title, texts) {
    if (!texts.length) return [];
    const items = make("ul");
    for (const text of texts) items.append(make("li", "", text));
    return [make("h4", "", title), items];
  }
  function describe(node) {
    const facts = [
      ["kernel", node.kernel], ["tile", node.tiling], ["region", node.region], ["step", node.step == null ? "" : `${node.step}`],
      ["result", [node.shape, node.dtype].filter(Boolean).join(" ")],
      ["measured", node.measured == null ? "" : asTime(node.measured)],
      ["estimated", node.estimate == null ? "" : asTime(node.estimate)],
      ["work", node.flops ? `${asFlops(node.flops)}${node.products < 1 ? `, of which ${asShare(node.products)} are computed` : ""}` : ""],
      ["rate", node.flops && timeOf(node) ? `${asFlops(node.flops / timeOf(node))}/s` : ""],
      ["of the roof", node.share == null ? "" : asShare(node.share)],
      ["moved", node.bytes ? asBytes(node.bytes) : ""],
      ["balance", node.balance == null ? "" : `${asShare(node.balance)} of the busiest thread`],
    ];
    const table = make("dl");
    for (const [name, value] of facts) if (value) table.append(make("dt", "", name), make("dd", "", value));
    const close = make("button", "close", "×");
    close.type = "button";
    close.setAttribute("aria-label", "close");
    close.addEventListener("click", () => choose(null));
    const parts = [close, make("h3", "", shorten(nameOps(node, 24), 90)), table, ...list("Ops", node.ops)];
    parts.push(...list("Reads", (graph?.makers.get(node.id) ?? []).map((id) => nameOps(byId.get(id), 60))));
    parts.push(...list("Decisions", node.decisions.map((d) => `${d.step}: ${d.node}: ${d.choice}: ${d.reason}`)));
    if (node.text) parts.push(make("h4", "", "What it computes"), make("p", "", node.text));
    if (node.source) parts.push(make("h4", "", "Its C"), make("pre", "", node.source));
    return parts;
  }
  // How much of the canvas the panel covers: it lies beside it, or on a narrow screen over its lower part.
  function covered() {
    const [panel, canvas] = ["panel", "canvas"].map((id) => at(id).getBoundingClientRect());
    return panel.left < canvas.right ? Math.max(canvas.bottom - panel.top, 0) : 0;
  }
  function choose(id, bring = false) {
    const node = id == null ? null : byId.get(id);
    const width = at("canvas").getBoundingClientRect().width;
    at("panel").hidden = !node;
    graph?.recentre(width);
    at("panel").replaceChildren(...(node ? describe(node) : []));
    at("panel").scrollTop = 0;
    graph?.mark(id, bring, node ? covered() : 0);
    for (const marked of document.querySelectorAll("#bars .row, .chart .mark")) marked.classList.toggle("chosen", !!id && marked.dataset.id === id);
  }
  const chooseFromChart = (id) => {
    choose(id, true);
    at("graph").scrollIntoView({ behavior: "smooth", block: "start" });
  };
  const chooseStep = (symbol, step) => {
    const node = nodes.find((n) => n.region === symbol && n.step === step);
    if (node) chooseFromChart(node.id);
  };

  // Sections ----------------------------------------------------------------------------------------
  const bodies = (id) => document.querySelector(`#${id} .body`);
  for (const { reason, nodes: names } of content.left) {
    const entry = make("details", "reason");
    entry.append(make("summary", "", `${names.length} × ${reason}`), make("p", "note", names.join(", ")));
    bodies("left").append(entry);
  }
  at("left").hidden = !content.left.length;
  const graph = nodes.length ? new NetworkGraph(at("canvas"), nodes, content.edges, (id) => choose(id)) : null;
  at("graph").hidden = !graph;
  paint();
  at("engines").hidden = !drawEngines(bodies("engines"), content.engines);
  at("bars").hidden = !drawBars(bodies("bars"), nodes, content.besides, colours.kernel, chooseFromChart);
  at("arena").hidden = !drawArena(bodies("arena"), content.regions, chooseStep);
  at("roof").hidden = !drawRoof(bodies("roof"), nodes, content.roof, colours.kernel, chooseFromChart);

  // Tools and keys ----------------------------------------------------------------------------------
  let found = [], current = -1;
  function go(step) {
    if (!found.length) return;
    current = (current + step + found.length) % found.length;
    at("found").textContent = `${current + 1} of ${found.length}`;
    choose(found[current], true);
  }
  at("search").addEventListener("input", () => {
    found = graph?.search(at("search").value) ?? [];
    current = -1;
    at("found").textContent = at("search").value.trim() ? `${found.length} found` : "";
  });
  at("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") go(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") {
      at("search").value = "";
      at("search").dispatchEvent(new Event("input"));
      at("canvas").focus();
    }
  });
  at("colour").addEventListener("change", paint);
  at("fit").addEventListener("click", () => graph?.fit());
  at("in").addEventListener("click", () => graph?.zoom(1.3));
  at("out").addEventListener("click", () => graph?.zoom(1 / 1.3));
  at("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  at("canvas").addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) {
      const next = graph.step(event.key);
      if (next) graph.mark(next, true);
      if (!at("panel").hidden && next) choose(next, true);
    } else if (event.key === "Enter" && graph.chosen) choose(graph.chosen, true);
    else if (event.key === "+" || event.key === "=") graph.zoom(1.3);
    else if (event.key === "-") graph.zoom(1 / 1.3);
    else if (event.key === "0") graph.fit();
    else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") choose(null);
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "")) {
      event.preventDefault();
      at("search").focus();
    }
  });
})();
