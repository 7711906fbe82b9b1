"use strict";
// Bars of steps, the arena over time, the roofline, and tables of engines.

// An element of HTML with a class, and text as text.
function make(tag, kind = "", text = null) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (text !== null) element.textContent = text;
  return element;
}

function inUnits(value, units, base) {
  let unit = 0;
  while (Math.abs(value) >= base && unit + 1 < units.length) {
    value /= base;
    unit++;
  }
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ${units[unit]}`;
}
const asBytes = (value) => inUnits(value, ["B", "KB", "MB", "GB"], 1024);
const asFlops = (value) => inUnits(value, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"], 1000);
const asTime = (seconds) => inUnits(seconds * 1e6, ["µs", "ms", "s"], 1000);
const asShare = (share) => `${(100 * share).toFixed(0)} %`;

// What a node takes: measured where it was, else as estimated.
function timeOf(node) {
  return node.measured ?? node.estimate ?? 0;
}

// Without `choose` rows are no buttons.
function drawBars(place, nodes, besides, colourOf, choose) {
  const timed = nodes.filter((node) => node.measured != null || node.estimate != null);
  const measured = timed.some((node) => node.measured != null);
  const most = Math.max(...timed.map((n) => Math.max(n.measured ?? 0, n.estimate ?? 0)), ...besides.map((b) => b.measured), 1e-12);
  place.append(make("p", "note", measured ? "Bar: measured. Thin line below it: estimated." : "Thin line: estimated; convoy profile measures."));
  const rows = make("div", "rows");
  for (const node of timed) {
    const row = make(choose ? "button" : "div", "row");
    if (choose) {
      row.type = "button";
      row.dataset.id = node.id;
      row.addEventListener("click", () => choose(node.id));
    }
    row.title = node.text;
    const track = make("span", "track");
    if (node.measured != null) {
      const bar = make("span", "bar");
      bar.style.width = `${(100 * node.measured) / most}%`;
      bar.style.background = colourOf(node);
      track.append(bar);
    }
    if (node.estimate != null) {
      const guess = make("span", "guess");
      guess.style.width = `${(100 * node.estimate) / most}%`;
      track.append(guess);
    }
    const numbers = [node.measured, node.estimate].map((time) => (time == null ? "" : asTime(time)));
    row.append(make("span", "name", nameOps(node, 26) || node.text), track, make("span", "number", numbers.filter(Boolean).join(" / ")));
    rows.append(row);
  }
  for (const other of besides) {
    const row = make("div", "row");
    const [track, bar] = [make("span", "track"), make("span", "bar")];
    bar.style.width = `${(100 * other.measured) / most}%`;
    bar.style.background = "var(--tvm)";
    track.append(bar);
    row.append(make("span", "name", other.text), track, make("span", "number", asTime(other.measured)));
    rows.append(row);
  }
  place.append(rows);
  return timed.length + besides.length > 0;
}

function drawArena(place, regions, choose) {
  const shown = regions.filter((region) => region.held.length);
  if (!shown.length) return false;
  const select = make("select");
  select.setAttribute("aria-label", "region");
  for (const region of shown) select.append(make("option", "", region.symbol));
  const note = make("p", "note");
  const chart = draw("svg", { class: "chart", role: "img", "aria-label": "who lies where in the arena" });
  place.append(...(shown.length > 1 ? [select] : []), note, chart);
  const update = () => {
    const region = shown[Math.max(select.selectedIndex, 0)];
    const [width, height, left, top] = [chart.clientWidth || 800, 340, 64, 12];
    const steps = region.steps.length;
    const held = region.held;
    const used = Array.from({ length: steps }, (_, i) => held.reduce((sum, h) => sum + (h.first <= i && i <= h.last ? h.bytes : 0), 0));
    const end = Math.max(...held.map((h) => h.offset + h.bytes));
    const peak = used.indexOf(Math.max(...used));
    const x = (step) => left + ((width - left - 10) * step) / steps;
    const y = (byte) => top + ((height - top - 28) * byte) / end;
    chart.replaceChildren();
    chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    held.forEach((h, i) => {
      const rect = draw("rect", { class: "mark", x: x(h.first), width: Math.max(x(h.last + 1) - x(h.first) - 1, 1), y: y(h.offset), height: Math.max(y(h.offset + h.bytes) - y(h.offset) - 0.5, 0.7), style: `fill: var(--c${i % 12})` });
      rect.append(draw("title", {}, `${h.maker}\n${asBytes(h.bytes)} at ${asBytes(h.offset)}, steps ${h.first} to ${h.last}`));
      rect.addEventListener("click", () => choose(region.symbol, h.first));
      chart.append(rect);
    });
    chart.append(draw("line", { class: "ceiling dashed", x1: x(peak + 0.5), x2: x(peak + 0.5), y1: top, y2: height - 26 }));
    for (const part of [0, 0.5, 1]) chart.append(draw("text", { x: 4, y: y(end * part) + (part ? 0 : 10) }, asBytes(end * part)));
    chart.append(draw("text", { x: left, y: height - 8 }, `step 0 to ${steps - 1}`));
    note.textContent = `Peak: ${asBytes(used[peak])} in use at step ${peak} (dashed), ${asBytes(end)} laid out; the arena of a call is ${asBytes(region.arena)}.`;
  };
  select.addEventListener("change", update);
  window.addEventListener("resize", update);
  update();
  return true;
}

function drawRoof(place, nodes, roof, colourOf, choose) {
  const marks = nodes.filter((node) => node.flops > 0 && node.bytes > 0 && timeOf(node) > 0);
  if (!marks.length || !roof) return false;
  const chart = draw("svg", { class: "chart", role: "img", "aria-label": "roofline" });
  const best = Math.max(1, ...marks.map((node) => node.at_once / node.products));
  const narrow = marks.some((node) => node.at_once > 1);
  const measured = marks.some((node) => node.measured != null);
  place.append(
    make("p", "note", `Each dot is a step ${measured ? "as measured" : "as estimated"}: FLOP by the definition of its ops, a byte moved. Flat: the best FMA rate${best > 1 ? `, and above it ${narrow ? "that of narrower products, and " : ""}that of Winograd's fewer products, at most ${best.toFixed(1)} times as high` : ""}. Slopes: bytes from L2 and from memory.`),
    chart,
  );
  const update = () => {
    const [width, height, left, top] = [chart.clientWidth || 800, 340, 70, 14];
    const xs = marks.map((node) => node.flops / node.bytes);
    const ys = marks.map((node) => node.flops / timeOf(node));
    const [low, high] = [Math.log10(Math.min(...xs, roof.flops / roof.cache)) - 0.5, Math.log10(Math.max(...xs, (best * roof.flops) / roof.memory)) + 0.3];
    const [bottom, ceiling] = [Math.log10(Math.min(...ys)) - 0.3, Math.log10(Math.max(roof.flops * best, ...ys)) + 0.25];
    const x = (value) => left + ((width - left - 12) * (Math.log10(value) - low)) / (high - low);
    const y = (value) => height - 30 - ((height - 30 - top) * (Math.log10(value) - bottom)) / (ceiling - bottom);
    chart.replaceChildren();
    chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const line = (kind, slope, flat, label) => {
      const begin = 10 ** low, turn = flat / slope, end = 10 ** high;
      const points = [[Math.max(begin, 10 ** bottom / slope), Math.max(begin * slope, 10 ** bottom)], [Math.min(turn, end), Math.min(flat, end * slope)], [end, Math.min(flat, end * slope)]];
      chart.append(draw("polyline", { class: kind, points: points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") }));
      if (label) chart.append(draw("text", { x: width - 14, y: y(Math.min(flat, end * slope)) - 5, "text-anchor": "end" }, label));
    };
    line("ceiling", roof.cache, roof.flops, `FMA, ${asFlops(roof.flops)}/s`);
    line("ceiling dashed", roof.memory, roof.flops, "");
    if (best > 1) line("ceiling dashed", roof.cache * best, roof.flops * best, `${narrow ? "narrower or fewer products" : "Winograd"}, ${asFlops(roof.flops * best)}/s`);
    for (let power = Math.ceil(low); power <= high && x(10 ** power) < width - 110; power++) chart.append(draw("text", { x: x(10 ** power), y: height - 10, "text-anchor": "middle" }, `${10 ** power}`));
    for (let power = Math.ceil(bottom); power <= ceiling; power++) chart.append(draw("text", { x: 4, y: y(10 ** power) + 4 }, asFlops(10 ** power)));
    chart.append(draw("text", { x: width - 14, y: height - 10, "text-anchor": "end" }, "FLOP a byte"));
    marks.forEach((node, i) => {
      const dot = draw("circle", { class: "mark", cx: x(xs[i]), cy: y(ys[i]), r: 5, style: `fill: ${colourOf(node)}; fill-opacity: 0.85` });
      dot.dataset.id = node.id;
      dot.append(draw("title", {}, `${node.text}\n${asFlops(ys[i])}/s${node.share == null ? "" : `, ${asShare(node.share)} of the roof`}`));
      dot.addEventListener("click", () => choose(node.id));
      chart.append(dot);
    });
  };
  window.addEventListener("resize", update);
  update();
  return true;
}

function drawEngines(place, studies) {
  for (const study of studies) {
    place.append(make("h3", "", study.model));
    for (const text of study.lines) place.append(make("p", "note", text));
    const most = Math.max(...study.engines.map((engine) => engine.seconds ?? 0), 1e-12);
    const rows = make("div", "rows");
    for (const engine of study.engines) {
      const row = make("div", "row");
      const track = make("span", "track");
      if (engine.seconds != null) {
        const bar = make("span", "bar");
        bar.style.width = `${(100 * engine.seconds) / most}%`;
        bar.style.background = engine.wrong ? "transparent" : engine.engine === "convoy" ? "var(--c0)" : "var(--tvm)";
        if (engine.wrong) bar.style.border = "1px dashed var(--high)";
        track.append(bar);
      }
      row.append(make("span", "name", engine.engine), track, make("span", "number", engine.text));
      row.title = engine.more;
      rows.append(row);
      if (engine.more) rows.append(make("div", "note", engine.more));
    }
    place.append(rows);
    if (study.steps.length) drawBars(place, study.steps, [], () => "var(--c0)", null);
  }
  return studies.length > 0;
}
