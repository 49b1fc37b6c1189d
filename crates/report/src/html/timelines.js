// Timelines that share a cursor and a zoom: all of one experiment, in fractions of their time. Without scripts they are plain pictures.
(() => {
  const NS = document.querySelector("svg")?.namespaceURI;
  const make = (name, attributes, parent) => {
    const e = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    return parent.appendChild(e);
  };
  // A round step that divides a span into about so many parts.
  const step = (span, parts) => {
    const power = 10 ** Math.floor(Math.log10(span / parts));
    return [1, 2, 5, 10].map(m => m * power).find(s => s >= span / parts);
  };
  const time = (s, fine) => {
    const [scale, unit] = fine >= 1e-3 ? [1, "s"] : fine >= 1e-6 ? [1e3, "ms"] : [1e6, "µs"];
    const digits = Math.max(0, Math.min(3, -Math.floor(Math.log10(fine * scale) + 1e-9)));
    return `${(s * scale).toFixed(digits)} ${unit}`;
  };
  const groups = new Map();
  for (const svg of document.querySelectorAll("svg[data-end]")) {
    const home = svg.closest("details.more, section.counted") ?? document.body;
    const end = Number(svg.dataset.end);
    const all = groups.get(home) ?? groups.set(home, new Map()).get(home);
    const group = all.get(end) ?? all.set(end, { end, from: 0, to: 1, charts: [] }).get(end);
    const inner = svg.querySelector("svg.time");
    const [x, y, width, height] = inner.getAttribute("viewBox").split(" ").map(Number);
    const chart = { svg, inner, x, y, width, height, group };
    chart.ticks = make("g", { class: "ticks" }, svg);
    chart.brush = make("rect", { class: "brush", y, height, width: 0, visibility: "hidden" }, svg);
    chart.line = make("line", { class: "cursor", y1: y, y2: y + height, visibility: "hidden" }, svg);
    chart.label = make("text", { class: "cursor", y: y > 12 ? y - 3 : y + 9, visibility: "hidden" }, svg);
    group.charts.push(chart);
    listen(chart);
  }
  const at = (chart, event) => {
    const box = chart.svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * chart.svg.viewBox.baseVal.width;
    return (x - chart.x) / chart.width;
  };
  function point(group, share, words, here) {
    const span = group.to - group.from;
    const text = time((group.from + share * span) * group.end, span * group.end / 300);
    for (const c of group.charts) {
      const shown = share >= 0 && share <= 1 ? "visible" : "hidden";
      const x = c.x + share * c.width;
      c.line.setAttribute("x1", x); c.line.setAttribute("x2", x);
      c.line.setAttribute("visibility", shown); c.label.setAttribute("visibility", shown);
      c.label.setAttribute("x", x);
      c.label.setAttribute("text-anchor", share > 0.5 ? "end" : "start");
      c.label.textContent = c === here && words ? `${text} · ${words}` : text;
    }
  }
  function show(group) {
    const span = group.to - group.from, whole = span > 0.9999;
    for (const c of group.charts) {
      c.inner.setAttribute("viewBox", `${c.x + group.from * c.width} ${c.y} ${span * c.width} ${c.height}`);
      c.svg.classList.toggle("zoomed", !whole);
      c.ticks.replaceChildren();
      if (whole) continue;
      const by = step(span * group.end, c.width > 500 ? 8 : 4);
      for (let t = Math.ceil(group.from * group.end / by) * by; group.to * group.end >= t; t += by) {
        const x = c.x + (t / group.end - group.from) / span * c.width;
        make("text", { class: "tm", x, y: c.y + c.height + 15, "text-anchor": "middle" }, c.ticks).textContent = time(t, by);
      }
    }
  }
  function listen(chart) {
    const { svg, group } = chart;
    let began = null;
    const clamp = share => Math.max(0, Math.min(1, share));
    svg.addEventListener("pointerdown", event => {
      const share = at(chart, event);
      if (event.button || share < 0 || share > 1) return;
      began = share;
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", event => {
      const share = at(chart, event);
      const title = document.elementFromPoint(event.clientX, event.clientY)?.querySelector(":scope > title");
      point(group, share, title?.textContent, chart);
      if (began === null) return;
      const [a, b] = [began, clamp(share)].sort((a, b) => a - b);
      for (const c of group.charts) {
        c.brush.setAttribute("x", c.x + a * c.width);
        c.brush.setAttribute("width", (b - a) * c.width);
        c.brush.setAttribute("visibility", "visible");
      }
    });
    const finish = event => {
      if (began === null) return;
      const [a, b] = [began, clamp(at(chart, event))].sort((a, b) => a - b);
      began = null;
      group.charts.forEach(c => c.brush.setAttribute("visibility", "hidden"));
      // A click is no drag.
      if (event.type === "pointerup" && b - a > 0.01) {
        const span = group.to - group.from;
        [group.from, group.to] = [group.from + a * span, group.from + b * span];
        show(group);
      }
    };
    svg.addEventListener("pointerup", finish);
    svg.addEventListener("pointercancel", finish);
    svg.addEventListener("pointerleave", () => point(group, -1));
    svg.addEventListener("dblclick", () => {
      [group.from, group.to] = [0, 1];
      show(group);
    });
  }
  document.documentElement.classList.add("scripted");
})();
