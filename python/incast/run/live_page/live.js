// The live page of a run: takes its events (live_page.py says which) and draws them. No library, no other host.
"use strict";

const MAX_SAMPLES = 2000; // beyond, every second one goes: a run of days stays as light as one of minutes
const MAX_VALUES = 50000; // of all nodes in all samples
const MAX_NOTICES = 200;
const MAX_LINES = 10; // more nodes are a band with its mean and its slowest, as in the report
const DASHES = ["", "7 4", "8 3 2 3", "2 3"]; // as the report's
const MOST_WIDTH = 960, LEAST_WIDTH = 320, HEIGHT = 260, LEFT = 68, RIGHT = 12, TOP = 10, BOTTOM = 34;
const TROUBLES = [
  ["incomplete_events", "incomplete events"], ["dropped_events", "dropped events"],
  ["reassignments", "MEPs given to another builder"], ["evictions", "nodes dropped"],
  ["verify_errors", "not verified"],
];

let samples = [];
let held = null; // the samples that are shown while the plots are held
let virtual = false;
let drawing = false;
let width = MOST_WIDTH; // of the plots: as wide as the page, so that their words keep their size

const byId = (id) => document.getElementById(id);
const count = (value) => Math.round(value).toLocaleString("en");

function scaled(value, steps) {
  const [factor, unit] = steps.find(([least]) => value >= least) ?? steps[steps.length - 1];
  return [factor, unit];
}
const RATES = [[1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]];
const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const PLAIN = [[1, ""]];
function words(value, steps) {
  if (value === null || value === undefined) return "—";
  if (value === 0) return `0 ${steps[steps.length - 1][1]}`.trim();
  const [factor, unit] = scaled(value, steps);
  const number = value / factor;
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.max(Math.abs(number), 1))));
  return `${number.toFixed(factor === 1 && unit === "" ? 0 : digits)} ${unit}`.trim();
}

function svg(name, attributes, parent, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent?.append(element);
  return element;
}

// Round numbers from 0 (or `low`) to at least `high`, about so many.
function ticks(low, high, about) {
  const raw = (high - low) / about || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) found.push(k * step);
  return found;
}

class Plot {
  // `series_of` makes [{name, values}] of samples; values that are null are gaps.
  // `nothing`: what to say where there is no value, or none but 0.
  constructor(id, steps, nothing, series_of) {
    this.section = byId(id);
    this.nothing = nothing;
    this.steps = steps;
    this.series_of = series_of;
    this.cursor = null; // the sample that is read
    this.title = this.section.querySelector("h2").textContent;
    this.frame = document.createElement("div");
    this.frame.tabIndex = 0;
    this.frame.setAttribute("role", "application");
    this.frame.setAttribute("aria-label", `${this.title}; arrow keys read the values`);
    this.legend = document.createElement("ul");
    this.legend.className = "legend";
    this.reading = document.createElement("output");
    this.reading.className = "reading";
    this.section.append(this.frame, this.legend, this.reading);
    this.frame.addEventListener("keydown", (event) => this.key(event));
    this.frame.addEventListener("pointermove", (event) => this.point(event));
    this.frame.addEventListener("pointerleave", () => this.read(null));
  }

  draw(shown) {
    this.shown = shown;
    width = Math.max(LEAST_WIDTH, Math.min(MOST_WIDTH, this.frame.clientWidth || MOST_WIDTH));
    this.series = this.series_of(shown);
    const seen = (one) => [...one.values, ...(one.band ?? []).map(([, high]) => high)];
    this.top = this.series.flatMap(seen).reduce((most, value) => Math.max(most, value ?? 0), 0);
    const [factor, unit] = scaled(this.top, this.steps);
    this.first = shown[0]?.t ?? 0;
    this.last = Math.max(shown[shown.length - 1]?.t ?? 1, this.first + 1e-9);
    const image = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" });
    const rows = ticks(0, this.top / factor || 1, 4);
    this.ceiling = Math.max(rows[rows.length - 1], this.top / factor || 1) * factor * 1.04;
    for (const value of rows) {
      const y = this.y(value * factor);
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }, image);
      svg("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, image, String(Number(value.toPrecision(6))));
    }
    svg("text", { x: 0, y: TOP + 4 }, image, unit);
    for (const value of ticks(this.first, this.last, width / 120)) {
      svg("text", { x: this.x(value), y: HEIGHT - 16, "text-anchor": "middle" }, image, String(Number(value.toPrecision(6))));
    }
    svg("text", { x: width - RIGHT, y: HEIGHT - 2, "text-anchor": "end" }, image,
      `${virtual ? "virtual seconds" : "seconds"} since the start`);
    svg("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: this.y(0), y2: this.y(0) }, image);
    this.series.forEach((one, index) => this.line(image, one, index));
    if (this.top === 0) {
      svg("text", { class: "nothing", x: (LEFT + width) / 2, y: HEIGHT / 2 }, image, this.nothing);
    }
    this.mark = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" }, image);
    this.frame.replaceChildren(image);
    this.name_lines();
    this.read(this.cursor);
  }

  x(t) { return LEFT + ((width - LEFT - RIGHT) * (t - this.first)) / (this.last - this.first); }
  y(value) { return HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * value) / this.ceiling; }

  line(image, one, index) {
    if (one.band) {
      const upper = one.band.map(([, high], k) => `${this.x(this.shown[k].t)},${this.y(high)}`);
      const lower = one.band.map(([low], k) => `${this.x(this.shown[k].t)},${this.y(low)}`).reverse();
      svg("polygon", { class: "band", points: [...upper, ...lower].join(" ") }, image);
    }
    let points = [];
    const end = () => {
      if (points.length) svg("polyline", { ...this.look(index), points: points.join(" ") }, image);
      points = [];
    };
    one.values.forEach((value, k) => {
      if (value === null) end();
      else points.push(`${this.x(this.shown[k].t).toFixed(1)},${this.y(value).toFixed(1)}`);
    });
    end();
  }

  look(index) {
    return { class: `s${index % 6}`, "stroke-dasharray": DASHES[(index + Math.floor(index / 6)) % DASHES.length] };
  }

  name_lines() {
    const names = this.series.map((one) => one.name).join("\n");
    if (names === this.names) return;
    this.names = names;
    this.legend.replaceChildren(...this.series.map((one, index) => {
      const item = document.createElement("li");
      const key = svg("svg", { viewBox: "0 0 34 10", "aria-hidden": "true" }, item);
      svg("line", { ...this.look(index), x1: 1, x2: 33, y1: 5, y2: 5 }, key);
      item.append(one.name);
      return item;
    }));
  }

  // Says the values of a sample; null lets go.
  read(index) {
    const sample = index === null ? undefined : this.shown?.[Math.min(Math.max(index, 0), this.shown.length - 1)];
    this.cursor = sample === undefined ? null : this.shown.indexOf(sample);
    this.mark?.setAttribute("visibility", sample === undefined ? "hidden" : "visible");
    if (sample === undefined) {
      this.reading.textContent = "";
      return;
    }
    this.mark.setAttribute("x1", this.x(sample.t));
    this.mark.setAttribute("x2", this.x(sample.t));
    const values = this.series.map((one) => `${one.name} ${words(one.values[this.cursor], this.steps)}`);
    this.reading.textContent = `at ${sample.t.toPrecision(4)} s: ${values.join(", ")}`;
  }

  key(event) {
    const at = this.cursor ?? this.shown.length;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: this.shown.length - 1, Escape: null }[event.key];
    if (to === undefined || !this.shown.length) return;
    event.preventDefault();
    this.read(to === null ? null : Math.min(to, this.shown.length - 1));
  }

  point(event) {
    const box = this.frame.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width * width - LEFT) / (width - LEFT - RIGHT);
    const t = this.first + share * (this.last - this.first);
    let nearest = 0;
    this.shown.forEach((sample, k) => {
      if (Math.abs(sample.t - t) < Math.abs(this.shown[nearest].t - t)) nearest = k;
    });
    if (this.shown.length) this.read(nearest);
  }
}

// What a node builds, or sends where it builds nothing: as the report has it.
function node_rates(shown) {
  const names = [...new Set(shown.flatMap((sample) => sample.nodes.map((node) => node.name)))];
  const builders = new Set(shown.flatMap((sample) => sample.nodes.filter((node) => node.built > 0).map((node) => node.name)));
  const by_name = shown.map((sample) => new Map(sample.nodes.map((node) => [node.name, node])));
  const all = names.map((name) => ({
    name: `node ${name}`,
    values: by_name.map((nodes) => {
      const node = nodes.get(name);
      return node === undefined ? null : builders.has(name) ? node.built : node.sent;
    }),
  }));
  if (all.length <= MAX_LINES) return all;
  const columns = shown.map((_, k) => all.map((one) => one.values[k]).filter((value) => value !== null));
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(values.length, 1);
  const slowest = all.reduce((a, b) => (mean(a.values) <= mean(b.values) ? a : b));
  const band = columns.map((column) => [Math.min(...column, mean(column)), Math.max(...column, 0)]);
  return [
    { name: `mean of ${all.length} nodes, and the range of all`, values: columns.map(mean), band },
    { name: `slowest: ${slowest.name}`, values: slowest.values },
  ];
}

function trouble_lines(shown) {
  return TROUBLES.map(([key, name]) => ({
    name, values: shown.map((sample, k) => Math.max(0, sample[key] - (shown[k - 1]?.[key] ?? 0))),
  }));
}

function redraw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    plots.forEach((plot) => plot.draw(held ?? samples));
  });
}

addEventListener("resize", redraw);

function show_numbers(sample) {
  const unit = virtual ? "virtual s" : "s";
  const left = sample.left_s ? `, ${sample.left_s.toFixed(virtual ? 3 : 0)} ${unit} left` : "";
  byId("phase").textContent = `${sample.phase}, ${sample.t.toFixed(virtual ? 3 : 1)} ${unit}${left}`;
  byId("goodput").textContent = words(sample.goodput_bytes_per_s, RATES);
  byId("events").textContent = `${count(sample.events_per_s)}/s`;
  byId("latency").textContent = words(sample.latency_mean_ns, TIMES);
  byId("losses").textContent = ["incomplete_events", "dropped_events", "verify_errors"].map((key) => count(sample[key])).join(", ");
  byId("nodes").replaceChildren(...sample.nodes.map((node) => {
    const row = document.createElement("tr");
    for (const text of [node.name, node.state, words(node.built, RATES), words(node.sent, RATES)]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      row.append(cell);
    }
    row.children[1].className = node.state === "lost" ? "lost" : "";
    return row;
  }));
}

function add_notice(notice) {
  const item = document.createElement("li");
  item.className = notice.level;
  item.textContent = notice.level === "info" || notice.level === "engine" ? notice.text : `${notice.level}: ${notice.text}`;
  const list = byId("notices");
  list.append(item);
  while (list.children.length > MAX_NOTICES) list.firstElementChild.remove();
}

function take_sample(sample) {
  samples.push(sample);
  if (samples.length > Math.min(MAX_SAMPLES, MAX_VALUES / Math.max(sample.nodes.length, 1))) samples = samples.filter((_, k) => k % 2 === 1);
  show_numbers(sample);
  redraw();
}

function take_all(state) {
  virtual = state.virtual;
  samples = state.samples;
  document.title = state.title;
  byId("title").textContent = state.title;
  byId("domain").textContent = virtual ? "SIMULATED, virtual time" : "measured";
  byId("domain").classList.toggle("simulated", virtual);
  byId("notices").replaceChildren();
  state.notices.forEach(add_notice);
  if (samples.length) show_numbers(samples[samples.length - 1]);
  redraw();
}

const plots = [
  new Plot("throughput", RATES, "nothing yet", node_rates),
  new Plot("latencies", TIMES, "nothing yet", (shown) => [
    { name: "mean over all MEPs built", values: shown.map((one) => one.latency_mean_ns) },
  ]),
  new Plot("troubles", PLAIN, "none so far", trouble_lines),
];

byId("pause").addEventListener("click", () => {
  held = held === null ? [...samples] : null;
  byId("pause").setAttribute("aria-pressed", String(held !== null));
  redraw();
});

const events = new EventSource("events");
events.addEventListener("state", (event) => {
  byId("connection").textContent = "";
  take_all(JSON.parse(event.data));
});
events.addEventListener("sample", (event) => take_sample(JSON.parse(event.data)));
events.addEventListener("notice", (event) => add_notice(JSON.parse(event.data)));
events.addEventListener("end", (event) => {
  events.close();
  byId("phase").textContent = JSON.parse(event.data).text;
});
events.addEventListener("error", () => {
  byId("connection").textContent = "(no connection to the run; trying again)";
});
