"use strict";
// The dashboard: reads /v1/status/events, and draws. No library; every text goes in as text, never as markup.

const KEPT = 300;
const SILENCE = 6000;
const $ = (id) => document.getElementById(id);
const TOKEN = "ropewalk-token";

// --- making things ---------------------------------------------------------------------------------------------------

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick") node.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Only what has changed is touched: focus and selections stay, and readers of the screen are left in peace.
function put(node, text) {
  const wanted = text === null || text === undefined ? "" : String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

function mark(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

// Keeps one child of `parent` for each item, in their order, and updates each.
function keep(parent, items, key, make, update) {
  const known = parent.known || (parent.known = new Map());
  const seen = new Set();
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    seen.add(name);
    let node = known.get(name);
    if (!node) known.set(name, (node = make(item)));
    if (node !== at) parent.insertBefore(node, at);
    else at = at.nextElementSibling;
    update(node, item);
  }
  for (const [name, node] of known) {
    if (seen.has(name)) continue;
    // What had the focus is gone: its neighbour gets it.
    const had = node.contains(document.activeElement);
    const next = node.nextElementSibling || node.previousElementSibling;
    node.remove();
    known.delete(name);
    if (had) ((next && next.querySelector("button")) || $("main")).focus();
  }
}

// --- words for numbers -----------------------------------------------------------------------------------------------

function count(number) {
  if (number === null || number === undefined) return "–";
  if (number >= 1e6) return (number / 1e6).toFixed(number < 1e7 ? 2 : 1) + "M";
  if (number >= 1e4) return (number / 1e3).toFixed(number < 1e5 ? 1 : 0) + "k";
  return number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 1 : 0 });
}

function seconds(time) {
  if (time === null || time === undefined) return "–";
  if (time < 0.001) return Math.max(1, Math.round(time * 1e6)) + " µs";
  if (time < 1) return (time * 1e3).toFixed(time < 0.01 ? 1 : 0) + " ms";
  if (time < 60) return time.toFixed(time < 10 ? 1 : 0) + " s";
  if (time < 3600) return Math.floor(time / 60) + " min " + Math.floor(time % 60) + " s";
  if (time < 86400) return Math.floor(time / 3600) + " h " + Math.floor((time % 3600) / 60) + " min";
  return Math.floor(time / 86400) + " d " + Math.floor((time % 86400) / 3600) + " h";
}

function bytes(number) {
  if (!number) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(number) / 10));
  const value = number / 1024 ** power;
  return value.toFixed(value < 10 && power > 0 ? 1 : 0) + " " + units[power];
}

const clock = (time) => new Date(time * 1000).toLocaleTimeString([], { hour12: false });
const plural = (number, word) => number + " " + word + (number === 1 ? "" : "s");

// --- what is known ---------------------------------------------------------------------------------------------------

const known = { last: null, calls: new Map(), tools: new Map(), failures: [] };

function learn(document_) {
  if (document_.whole) {
    known.calls.clear();
    known.tools.clear();
    known.failures = [];
  }
  const oldest = document_.second - KEPT;
  const merge = (map, rows) => {
    for (const row of rows) map.set(row[0], row);
    for (const second of map.keys()) if (second < oldest) map.delete(second);
  };
  merge(known.calls, document_.calls);
  for (const tool of document_.tools) {
    if (!known.tools.has(tool.name)) known.tools.set(tool.name, new Map());
    merge(known.tools.get(tool.name), tool.series);
  }
  const before = known.failures.length ? known.failures[known.failures.length - 1].number : 0;
  known.failures.push(...document_.failures.filter((failure) => failure.number > before));
  known.failures.splice(0, known.failures.length - 100);
  known.last = document_;
}

// The row of each of the last seconds, `undefined` where no call ended. The second that goes on is left out.
function window_(map, length) {
  const end = known.last.second - 1;
  return Array.from({ length }, (_, place) => map.get(end - length + 1 + place));
}

// --- charts ----------------------------------------------------------------------------------------------------------

const H = 150, LEFT = 46, RIGHT = 6, TOP = 8, BOTTOM = 20;
// As wide as it is drawn: letters keep their shape.
let W = 600;
const across = (place, length) => LEFT + ((W - LEFT - RIGHT) * place) / Math.max(1, length - 1);

function line(values, y) {
  let path = "", open = false;
  values.forEach((value, place) => {
    if (value === null || value === undefined) { open = false; return; }
    path += (open ? "L" : "M") + across(place, values.length).toFixed(1) + " " + y(value).toFixed(1);
    // A second alone is a dot.
    if (!open && (values[place + 1] === null || values[place + 1] === undefined)) path += "h0.01";
    open = true;
  });
  return path;
}

function area(values, y) {
  const base = y(0).toFixed(1);
  return "M" + LEFT + " " + base + values.map((value, place) =>
    "L" + across(place, values.length).toFixed(1) + " " + y(value || 0).toFixed(1)).join("") + "V" + base + "Z";
}

function nice(top) {
  if (!(top > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(top));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= top * 0.999);
}

function frame(id, title, keys) {
  const text = svg("desc", {});
  const body = svg("g", {});
  const name = svg("title", {});
  name.textContent = title;
  const drawing = svg("svg", { role: "img" }, name, text, body);
  name.id = id + "-name";
  text.id = id + "-text";
  drawing.setAttribute("aria-labelledby", name.id + " " + text.id);
  const caption = el("figcaption", {}, el("b", {}, title), ...keys.map(([kind, word]) => el("span", { class: "key " + kind }, word)));
  $(id).append(caption, drawing);
  return (description, parts) => {
    mark(drawing, "viewBox", "0 0 " + W + " " + H);
    put(text, description);
    body.replaceChildren(...parts);
  };
}

function axes(ticks, y) {
  const parts = [];
  for (const [value, word] of ticks) {
    const at = y(value).toFixed(1);
    const label = svg("text", { x: LEFT - 6, y: Number(at) + 4, "text-anchor": "end" });
    label.textContent = word;
    parts.push(svg("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: at, y2: at }), label);
  }
  for (let minute = 1; minute <= 4; minute += 1) {
    const label = svg("text", { x: across(KEPT - 1 - minute * 60, KEPT), y: H - 5, "text-anchor": "middle" });
    label.textContent = "−" + minute + " min";
    parts.push(label);
  }
  return parts;
}

let drawThroughput, drawLatency;

function charts() {
  W = Math.max(240, $("throughput").clientWidth - 28);
  const rows = window_(known.calls, KEPT);
  const rate = rows.map((row) => (row ? row[1] : 0));
  const failed = rows.map((row) => (row ? row[2] : 0));
  const top = nice(Math.max(...rate));
  const y = (value) => TOP + (H - TOP - BOTTOM) * (1 - value / top);
  const last = rate[rate.length - 1];
  drawThroughput(
    "Now " + count(last) + " calls a second; the most in five minutes was " + count(Math.max(...rate)) + ". " +
      plural(failed.reduce((sum, value) => sum + value, 0), "failure") + " in five minutes.",
    [...axes([0, top / 2, top].map((value) => [value, count(value)]), y),
      svg("path", { class: "a-ok", d: area(rate, y) }), svg("path", { class: "l-ok", d: line(rate, y) }),
      ...(failed.some(Boolean) ? [svg("path", { class: "a-bad", d: area(failed, y) }), svg("path", { class: "l-bad", d: line(failed.map((value) => value || null), y) })] : [])]);

  const half = rows.map((row) => (row ? row[4] : null));
  const high = rows.map((row) => (row ? row[5] : null));
  const times = [...half, ...high].filter((time) => time > 0);
  // By powers of ten: a microsecond and a minute both have their place.
  const least = times.length ? Math.floor(Math.log10(Math.min(...times))) : -4;
  const most = times.length ? Math.max(least + 1, Math.ceil(Math.log10(Math.max(...times)))) : 0;
  const log = (time) => TOP + (H - TOP - BOTTOM) * (1 - (Math.log10(Math.max(time, 1e-6)) - least) / (most - least));
  const ticks = Array.from({ length: most - least + 1 }, (_, place) => 10 ** (least + place));
  const late = high.filter((time) => time !== null && time !== undefined);
  drawLatency(
    late.length ? "In the last second with calls, half took up to " + seconds(half.filter((time) => time !== null && time !== undefined).pop()) +
      ", and 99 of 100 up to " + seconds(late[late.length - 1]) + "." : "No calls in five minutes.",
    [...axes(ticks.map((value) => [value, seconds(value).replace(".0", "")]), log),
      svg("path", { class: "l-slow", d: line(high, log) }), svg("path", { class: "l-ok", d: line(half, log) })]);
}

function spark(values, most, words) {
  const length = values.length;
  const node = svg("svg", { viewBox: "0 0 96 20", role: "img", "aria-label": words });
  if (length > 1) {
    const x = (place) => (96 * place) / (length - 1);
    const y = (value) => 18.5 - (17 * Math.min(value, most)) / (most || 1);
    const path = values.map((value, place) => (place ? "L" : "M") + x(place).toFixed(1) + " " + y(value).toFixed(1)).join("");
    node.append(svg("path", { class: "a-ok", d: path + "V20H0Z" }), svg("path", { class: "l-ok", d: path }));
  }
  return node;
}

// --- the parts of the page -------------------------------------------------------------------------------------------

function header() {
  const { server } = known.last;
  put($("server"), location.host + " · version " + server.version + " · up " + seconds(server.uptime));
  const state = server.ready ? ["good", "ready"] : server.leaving ? ["warn", "draining"] : ["warn", server.why_not || "not ready"];
  mark($("state"), "data-state", state[0]);
  put($("state"), state[1]);
  $("drain").hidden = !known.last.may_administer || server.leaving;
  put($("foot"), "Times within a bucket of the histogram are estimates. Process " + server.pid + ", " + bytes(server.memory) +
    (server.shared_memory ? ", " + bytes(server.shared_memory) + " of shared memory" : "") + ".");
  document.title = (server.ready ? "" : "⚠ ") + "Ropewalk · " + location.host;
}

function recent(rows, place) {
  return rows.reduce((sum, row) => sum + (row ? row[place] : 0), 0);
}

function tiles() {
  const minute = window_(known.calls, 60);
  const last5 = window_(known.calls, 5);
  const { pools, server } = known.last;
  const total = (of) => pools.reduce((sum, pool) => sum + of(pool), 0);
  const lastRow = [...minute].reverse().find(Boolean);
  const oldest = Math.max(0, ...pools.map((pool) => pool.oldest || 0));
  const queued = total((pool) => pool.queued);
  const failed = recent(minute, 2), shed = recent(minute, 3);
  const workers = pools.flatMap((pool) => pool.workers);
  const busy = workers.filter((worker) => worker.state === "busy").length;
  const items = [
    ["Calls a second", count(recent(last5, 1) / Math.min(5, Math.max(1, known.last.second - 1)))],
    ["p50", lastRow ? seconds(lastRow[4]) : "–"],
    ["p99", lastRow ? seconds(lastRow[5]) : "–"],
    ["Busy workers", busy, " of " + total((pool) => pool.size)],
    ["Waiting", count(queued), oldest > 0.001 ? " oldest " + seconds(oldest) : "", oldest > 1 ? "warn" : null],
    ["Failed in a minute", count(failed), "", failed ? "bad" : null],
    ["Shed in a minute", count(shed), "", shed ? "warn" : null],
    ["Workers’ memory", bytes(workers.reduce((sum, worker) => sum + worker.memory, 0))],
  ];
  keep($("tiles"), items, (item) => item[0], () => el("div", {}, el("dd", {}, el("span", {}), el("small", {})), el("dt", {})),
    (node, [name, value, more, state]) => {
      put(node.querySelector("dt"), name);
      put(node.querySelector("span"), value);
      put(node.querySelector("small"), more || "");
      mark(node, "data-state", state || "");
    });
}

function pools() {
  keep($("pools"), known.last.pools, (pool) => pool.name, makePool, updatePool);
}

function makePool(pool) {
  const title = "pool-" + pool.name;
  return el("section", { class: "card pool", "aria-label": "Pool " + pool.name },
    el("div", { class: "bar" }, el("h3", { id: title }, pool.name), el("p", { class: "facts" }),
      el("button", { class: "resize", onclick: () => resize(pool.name) }, "Resize")),
    el("p", { class: "advice", hidden: true }),
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-labelledby": title },
      el("table", { "aria-label": "Workers of " + pool.name },
        el("thead", {}, el("tr", {}, ...[["Worker", ""], ["State", ""], ["Task", "task"], ["Busy", "spark wide"], ["Memory", "n"],
          ["Age", "n wide"], ["Done", "n wide"], ["Process", "n wide"], ["Look and act", "acts"]].map(
          ([word, kind]) => el("th", { scope: "col", class: kind }, word === "Look and act" ? el("span", { class: "unseen" }, word) : word)))),
        el("tbody", {}))));
}

function updatePool(node, pool) {
  const restarts = Object.entries(pool.restarts).map(([cause, number]) => number + " " + cause.replaceAll("_", " "));
  const facts = [["", pool.ready], [" of ", pool.size], [" ready · ", pool.queued], [" waiting · ", pool.running], [" running"]];
  const line_ = facts.map(([before, number]) => before + (number === undefined ? "" : number)).join("") +
    (pool.delayed ? " · " + pool.delayed + " run again later" : "") + (pool.sessions ? " · " + plural(pool.sessions, "session") : "") +
    (pool.oldest > 0.001 ? " · oldest waits " + seconds(pool.oldest) : "") + (restarts.length ? " · replaced: " + restarts.join(", ") : "") +
    (pool.tasks.hung ? " · " + pool.tasks.hung + " hung" : "");
  put(node.querySelector(".facts"), line_);
  const advice = [pool.shortage, pool.advice].filter(Boolean).join(" ");
  node.querySelector(".advice").hidden = !advice;
  put(node.querySelector(".advice"), advice);
  node.querySelector(".resize").hidden = !known.last.may_administer;
  keep(node.querySelector("tbody"), pool.workers, (worker) => worker.number, (worker) => makeWorker(pool.name, worker), updateWorker);
}

function makeWorker(pool, worker) {
  const name = pool + "/" + worker.number;
  const button = (word, call, kind) => el("button", { class: kind, "aria-label": word + " of worker " + name, onclick: call }, word);
  return el("tr", {},
    el("th", { scope: "row" }, String(worker.number)), el("td", {}, el("span", { class: "pill" })), el("td", { class: "task" }),
    el("td", { class: "spark wide" }), el("td", { class: "n" }), el("td", { class: "n wide" }), el("td", { class: "n wide" }), el("td", { class: "n wide" }),
    el("td", { class: "acts" }, button("Stack", () => look("stack", pool, worker.number), "look"), button("Flame", () => look("flame", pool, worker.number), "look"),
      el("button", { class: "danger", "aria-label": "Recycle worker " + name, onclick: () => recycle(pool, worker.number) }, "Recycle")));
}

function updateWorker(node, worker) {
  const [, state, task, busy, memory, age, done, process, acts] = node.children;
  mark(state.firstChild, "data-state", worker.state);
  put(state.firstChild, worker.state);
  const tasks = worker.tasks.map((one) => (one.tool || "a task") + " for " + seconds(one.seconds) + (one.attempt > 1 ? ", attempt " + one.attempt : ""));
  put(task, tasks.join("; "));
  mark(task, "title", tasks.join("; "));
  const last = worker.history[worker.history.length - 1];
  const words = worker.history.length ? "busy " + last + " % of the last second" : "no history yet";
  busy.replaceChildren(spark(worker.history, 100, words));
  put(memory, bytes(worker.memory));
  put(age, seconds(worker.age));
  put(done, count(worker.completed));
  put(process, worker.pid || "–");
  for (const button of acts.children) {
    button.hidden = !known.last.may_administer;
    button.disabled = button.classList.contains("look") ? !worker.can_be_inspected : worker.state === "leaving";
  }
}

function tools() {
  const rows = [...known.last.tools].sort((one, other) => other.recent.rate - one.recent.rate || one.name.localeCompare(other.name));
  if (!rows.length) rows.push(null);
  keep($("tools"), rows, (tool) => (tool ? tool.name : ""), (tool) => tool
    ? el("tr", {}, el("th", { scope: "row" }, tool.name), ...["n", "n", "n wide", "n", "n", "n", "n wide", "n wide", "spark wide"].map((kind) => el("td", { class: kind })))
    : el("tr", {}, el("td", { colspan: "10", class: "empty" }, "No tool has been called yet.")), updateTool);
}

function updateTool(node, tool) {
  if (!tool) return;
  const [, rate, p50, p90, p99, failed, shed, active, calls, chart] = node.children;
  put(rate, count(tool.recent.rate));
  put(p50, seconds(tool.recent.p50));
  put(p90, seconds(tool.recent.p90));
  put(p99, seconds(tool.recent.p99));
  if (!failed.firstChild) failed.append(el("span", {}));
  put(failed.firstChild, count(tool.recent.failed));
  mark(failed.firstChild, "class", tool.recent.failed ? "bad" : "");
  put(shed, count(tool.recent.shed));
  mark(shed, "title", Object.entries(tool.shed).map(([cause, number]) => number + " " + cause.replaceAll("_", " ")).join(", "));
  put(active, count(tool.active));
  put(calls, count(tool.calls));
  const values = window_(known.tools.get(tool.name), 60).map((row) => (row ? row[1] : 0));
  const most = Math.max(...values);
  chart.replaceChildren(spark(values, most, "up to " + count(most) + " calls a second in the last minute"));
}

const FEW = 8;
let allFailures = false;

function failures() {
  const all = [...known.failures].reverse();
  const newest = allFailures ? all : all.slice(0, FEW);
  $("failures-all").hidden = all.length <= FEW;
  put($("failures-all"), allFailures ? "Show fewer" : "Show all " + all.length);
  mark($("failures-all"), "aria-expanded", String(allFailures));
  const more = known.last.failures_unkept;
  put($("failures-count"), all.length ? "the last " + all.length + (more ? "; " + more + " more were only counted" : "") : "");
  if (!newest.length) newest.push(null);
  keep($("failures"), newest, (failure) => (failure ? failure.number : 0), (failure) => {
    if (!failure) return el("li", { class: "empty" }, "None.");
    const parts = [el("time", { class: "quiet", datetime: new Date(failure.time * 1000).toISOString() }, clock(failure.time)),
      el("b", {}, failure.tool), el("span", { class: "status" }, failure.status), el("span", { class: "said" }, failure.message),
      el("span", { class: "quiet" }, seconds(failure.took) + (failure.pid ? " · process " + failure.pid : "") + (failure.attempts > 1 ? " · attempt " + failure.attempts : ""))];
    return el("li", {}, failure.traceback
      ? el("details", {}, el("summary", {}, ...parts), el("pre", { tabindex: "0", role: "group", "aria-label": "Traceback" }, failure.traceback))
      : el("div", { class: "plain" }, ...parts));
  }, () => {});
}

function flows() {
  const all = known.last.flows || [];
  $("flows-section").hidden = !all.length;
  keep($("flows"), all, (one) => one.journal, (one) => el("section", { class: "card pool", "aria-label": "Flows of " + one.journal },
    el("div", { class: "bar" }, el("h3", {}, one.journal), el("p", { class: "facts" })),
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Runs of " + one.journal }, el("table", {},
      el("thead", {}, el("tr", {}, ...["Run", "State", "Last step", "Began"].map((word) => el("th", { scope: "col" }, word)))), el("tbody", {})))),
  (node, one) => {
    put(node.querySelector(".facts"), Object.entries(one.states).map(([state, number]) => number + " " + state).join(" · "));
    keep(node.querySelector("tbody"), [...one.runs].reverse(), (run) => run.id, (run) => el("tr", {}, el("th", { scope: "row" }, run.id),
      el("td", {}, el("span", { class: "pill" })), el("td", { class: "task" }), el("td", {}, clock(run.began))), (row, run) => {
      const states = { succeeded: "good", failed: "bad", cancelled: "warn", stopped: "warn", running: "busy" };
      mark(row.children[1].firstChild, "data-state", states[run.state] || "");
      put(row.children[1].firstChild, run.state);
      const step = run.last_steps[run.last_steps.length - 1];
      put(row.children[2], step ? step.name + ": " + step.state + (step.error ? ", " + step.error : "") + (run.steps > 1 ? " (step " + run.steps + ")" : "") : "–");
    });
  });
}

function beside(id, columns) {
  const all = known.last[id] || [];
  $(id + "-section").hidden = !all.length;
  keep($(id), all, (one) => one.name, (one) => el("tr", {}, el("th", { scope: "row" }, one.name),
    ...columns.map(([, kind]) => el("td", { class: kind }))), (row, one) => {
    columns.forEach(([name], place) => put(row.children[place + 1], count(one[name])));
  });
}

const signals = () => beside("signals", [["published", "n"], ["delivered", "n"], ["waiting", "n"], ["dropped", "n"],
  ["failed", "n wide"], ["handlers", "n wide"], ["subscriptions", "n wide"]]);
const stores = () => beside("stores", [["commits", "n"]]);

let waiting = false;

function draw() {
  // A page that is not seen costs nothing; it catches up when it is.
  if (!known.last || document.hidden || waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const part of [header, tiles, charts, pools, tools, flows, signals, stores, failures]) part();
  });
}

// --- the connection --------------------------------------------------------------------------------------------------

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: "Bearer " + token } : {};
}

function connected(is, why) {
  const state = is ? ["good", "live"] : ["bad", "connection lost"];
  mark($("connection"), "data-state", state[0]);
  put($("connection"), state[1]);
  document.body.classList.toggle("stale", !is);
  $("lost").hidden = is;
  if (!is) put($("lost"), "Connection lost: " + why + ". " + (known.last ? "What you see is as of " + clock(known.last.time) + ". " : "") + "Trying again.");
}

async function watch() {
  const stop = new AbortController();
  let silence = setTimeout(() => stop.abort(), SILENCE);
  try {
    const response = await fetch("/v1/status/events", { headers: headers(), signal: stop.signal, cache: "no-store" });
    if (response.status === 401) return "token";
    if (!response.ok) throw new Error("the server answers " + response.status);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the server has ended it");
      clearTimeout(silence);
      silence = setTimeout(() => stop.abort(), SILENCE);
      text += value;
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        const data = text.slice(0, end).split("\n").filter((one) => one.startsWith("data: ")).map((one) => one.slice(6)).join("\n");
        text = text.slice(end + 2);
        if (!data) continue;
        learn(JSON.parse(data));
        connected(true);
        draw();
      }
    }
  } catch (error) {
    return stop.signal.aborted ? "the server says nothing" : error instanceof TypeError ? "the server cannot be reached" : error.message;
  } finally {
    clearTimeout(silence);
    stop.abort();
  }
}

async function live() {
  let pause = 500;
  for (;;) {
    const began = Date.now();
    const why = await watch();
    if (why === "token") { await login(); continue; }
    connected(false, why);
    // One that held for a while is tried again at once.
    pause = Date.now() - began > 10000 ? 500 : Math.min(5000, pause * 1.6);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

function login() {
  const had = sessionStorage.getItem(TOKEN);
  if (had) put($("login-text"), "The server does not know this token. Try another one; it stays in this tab, and is gone when the tab is closed.");
  sessionStorage.removeItem(TOKEN);
  $("login-token").value = "";
  return new Promise((resolve) => {
    $("login").addEventListener("close", () => {
      if ($("login-token").value) sessionStorage.setItem(TOKEN, $("login-token").value.trim());
      resolve();
    }, { once: true });
    $("login").showModal();
  });
}

// --- what is asked of the server -------------------------------------------------------------------------------------

async function order(path, body) {
  const response = await fetch(path, { method: "POST", headers: headers(), body: body === undefined ? undefined : JSON.stringify(body) });
  const said = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error((said.error && said.error.message) || "the server answers " + response.status);
  return said;
}

let saidUntil = 0;

function say(text) {
  put($("said"), text);
  clearTimeout(saidUntil);
  saidUntil = setTimeout(() => put($("said"), ""), 15000);
}

function confirm_(title, text, yes, field) {
  put($("ask-title"), title);
  put($("ask-text"), text);
  put($("ask-yes"), yes);
  $("ask-field").hidden = !field;
  if (field) {
    put($("ask-label"), field.label);
    Object.assign($("ask-input"), { type: "number", min: 1, max: 1024, value: field.value });
  } else {
    Object.assign($("ask-input"), { type: "text", value: "" });
  }
  $("ask").returnValue = "no";
  return new Promise((resolve) => {
    $("ask").addEventListener("close", () => resolve($("ask").returnValue === "yes" ? $("ask-input").value || true : null), { once: true });
    $("ask").showModal();
    (field ? $("ask-input") : $("ask-no")).focus();
  });
}

async function attempt(call, done) {
  try {
    await call();
    say(done);
  } catch (error) {
    say("It was not done: " + error.message + ".");
  }
}

async function recycle(pool, number) {
  const text = "Another worker takes its place. This one finishes what it runs, and leaves. No call is lost.";
  if (await confirm_("Recycle worker " + number + " of " + pool + "?", text, "Recycle")) {
    await attempt(() => order("/v1/workers/" + encodeURIComponent(pool) + "/" + number + "/recycle"), "Worker " + number + " of " + pool + " is being replaced.");
  }
}

async function resize(name) {
  const pool = known.last.pools.find((one) => one.name === name);
  const value = await confirm_("Resize " + name, "New workers start in the background. Those that are too many finish what they run, and leave.", "Resize", { label: "Workers", value: pool.size });
  if (value) await attempt(() => order("/v1/pools/" + encodeURIComponent(name) + "/resize", { workers: Number(value) }), name + " is to have " + plural(Number(value), "worker") + ".");
}

async function drain() {
  const text = "The server accepts no connection any more, answers what has begun, and ends. This page ends with it.";
  if (await confirm_("Drain the server?", text, "Drain")) await attempt(() => order("/v1/drain"), "The server drains.");
}

// --- stacks and flames -----------------------------------------------------------------------------------------------

const shown = { kind: "", pool: "", number: 0, said: null, number_: 0 };

async function look(kind, pool, number) {
  Object.assign(shown, { kind, pool, number, said: null });
  const mine = (shown.number_ += 1);
  put($("look-title"), (kind === "stack" ? "Stack of worker " : "Flame graph of worker ") + number + " of " + pool);
  $("look-seconds").hidden = kind === "stack";
  $("look-body").replaceChildren();
  if (!$("look").open) $("look").showModal();
  for (const id of ["look-again", "look-copy"]) $(id).disabled = true;
  const time = $("look-time").value;
  put($("look-note"), kind === "stack" ? "Asking the worker." : "Looking for " + time + " seconds.");
  let note;
  try {
    const path = "/v1/workers/" + encodeURIComponent(pool) + "/" + number + "/" + kind + (kind === "flame" ? "?seconds=" + time : "");
    const said = await order(path);
    if (mine !== shown.number_) return;
    shown.said = said;
    note = (kind === "flame" ? plural(said.samples, "sample") + (said.late ? ", " + said.late + " of them late because other code held the interpreter’s lock" : "") +
      (said.dropped ? "; " + said.dropped + " had too many different stacks to be told" : "") + ". " : "Process " + said.pid + ", at " + clock(Date.now() / 1000) + ". ") + (said.note || "");
    $("look-copy").disabled = false;
    showLook();
  } catch (error) {
    note = "It cannot be seen: " + error.message + ".";
  }
  if (mine !== shown.number_) return;
  put($("look-note"), note);
  $("look-again").disabled = false;
}

function showLook() {
  if (!shown.said) return;
  const idle = $("look-idle-box").checked, own = $("look-own-box").checked;
  if (shown.kind === "stack") showStack(shown.said.threads, idle, own);
  else showFlame(shown.said.folded, idle, own);
}

// The calls by which the runtime calls a tool, and those of Python's own threads.
const OWN = /\/ropewalk\/(pool\/(worker|zygote)|serving\/_worker)|^<string>$|\/threading\.py$/;

function showStack(threads, idle, own) {
  const busy = threads.filter((thread) => !thread.idle);
  // Where all are idle, that is the answer.
  const told = (idle || !busy.length ? threads : busy).map((thread) => {
    const others = thread.frames.filter((one) => !OWN.test(one.file));
    return { ...thread, frames: own || !others.length ? thread.frames : others };
  });
  $("look-body").replaceChildren(...told.map((thread) => el("section", { class: "thread", "aria-label": "Thread " + thread.name },
    el("h3", {}, thread.name, thread.idle ? el("span", { class: "pill", "data-state": "idle" }, "waits for tasks") : null,
      el("span", { class: "quiet" }, plural(thread.frames.length, "call") + ", innermost first")),
    el("ol", {}, ...thread.frames.map((one) => el("li", {}, el("b", {}, one.function), " ", el("span", {}, one.file + ":" + one.line), one.code ? el("code", {}, one.code) : null))))));
}

const isIdle = (stack) => /;_lane \([^;]*pool\/worker\/_life\.py[^;]*\)$/.test(stack);

function tree(folded) {
  const root = { name: "all threads", total: 0, self: 0, children: new Map(), parent: null };
  for (const [stack, samples] of Object.entries(folded)) {
    let node = root;
    node.total += samples;
    for (const name of stack.split(";")) {
      if (!node.children.has(name)) node.children.set(name, { name, total: 0, self: 0, children: new Map(), parent: node });
      node = node.children.get(name);
      node.total += samples;
    }
    node.self += samples;
  }
  return root;
}

const shortName = (name) => name.replace(/ \(.*\/([^/]*)\)$/, " ($1)");

function colour(name) {
  const file = (name.match(/\((.*?)(:\d+)?\)$/) || [null, name])[1];
  let hash = 0;
  for (const letter of file) hash = (hash * 31 + letter.codePointAt(0)) % 997;
  return "hsl(" + (16 + (hash % 42)) + " " + (78 + (hash % 14)) + "% " + (66 + (hash % 12)) + "%)";
}

const ROW = 20, DEPTH = 120;

function withoutOwn(stack) {
  const [thread, ...calls] = stack.split(";");
  const others = calls.filter((call) => !OWN.test((call.match(/ \((.*?)(:\d+)?\)$/) || [null, call])[1]));
  return others.length ? [thread, ...others].join(";") : stack;
}

function showFlame(folded, idle, own) {
  const sums = new Map();
  for (const [stack, samples] of Object.entries(folded)) {
    const name = own ? stack : withoutOwn(stack);
    sums.set(name, (sums.get(name) || 0) + samples);
  }
  const all = [...sums];
  const busy = all.filter(([stack]) => !isIdle(stack));
  const root = tree(Object.fromEntries(idle || !busy.length ? all : busy));
  const at = el("p", { id: "flame-at" });
  const holder = el("div", {});
  const tell = (node) => put(at, node.name + ": " + plural(node.total, "sample") + ", " + ((100 * node.total) / (root.total || 1)).toFixed(1) + " %" +
    (node.self ? ", of which " + node.self + " in itself" : ""));
  const zoom = (top, focus) => {
    const width = Math.max(320, Math.min(1060, $("look-body").clientWidth || 1060));
    const boxes = [];
    const place = (node, x, depth) => {
      const size = (width * node.total) / (top.total || 1);
      if (size < 0.7 || depth > DEPTH) return;
      boxes.push({ node, x, depth, size });
      let from = x;
      for (const child of [...node.children.values()].sort((one, other) => one.name.localeCompare(other.name))) {
        place(child, from, depth + 1);
        from += (width * child.total) / (top.total || 1);
      }
    };
    place(top, 0, 0);
    const height = ROW * (1 + Math.max(...boxes.map((box) => box.depth)));
    const drawing = svg("svg", { id: "flame", viewBox: "0 0 " + width + " " + height, height, role: "group",
      "aria-label": "Flame graph: a box for each function, as wide as the time that was spent in it and in what it called. Arrow keys go from box to box, Enter zooms, Escape or Backspace zooms out." });
    boxes.forEach((box, index) => {
      const part = ((100 * box.node.total) / (root.total || 1)).toFixed(1) + " %";
      const group = svg("g", { tabindex: index === 0 ? "0" : "-1", role: "button", "aria-label": box.node.name + ", " + part });
      group.append(svg("rect", { x: box.x.toFixed(2), y: box.depth * ROW, width: box.size.toFixed(2), height: ROW - 1, rx: 2,
        fill: box.node === root ? "hsl(210 25% 78%)" : colour(box.node.name) }));
      if (box.size > 40) {
        const label = svg("text", { x: (box.x + 4).toFixed(2), y: box.depth * ROW + 14 });
        const room = Math.floor((box.size - 8) / 7);
        const word = shortName(box.node.name);
        label.textContent = word.length > room ? word.slice(0, Math.max(0, room - 1)) + "…" : word;
        group.append(label);
      }
      box.group = group;
      group.addEventListener("mouseenter", () => tell(box.node));
      group.addEventListener("focus", () => tell(box.node));
      group.addEventListener("click", () => zoom(box.node === top && top.parent ? top.parent : box.node, true));
      drawing.append(group);
    });
    drawing.addEventListener("keydown", (event) => {
      const here = boxes.find((box) => box.group === document.activeElement);
      if (!here) return;
      const level = boxes.filter((box) => box.depth === here.depth);
      const next = {
        ArrowUp: () => boxes.find((box) => box.node === here.node.parent),
        ArrowDown: () => boxes.filter((box) => box.node.parent === here.node).sort((one, other) => other.size - one.size)[0],
        ArrowRight: () => level[level.indexOf(here) + 1],
        ArrowLeft: () => level[level.indexOf(here) - 1],
        Home: () => boxes[0],
      }[event.key];
      if (next) {
        event.preventDefault();
        const to = next();
        if (!to) return;
        here.group.setAttribute("tabindex", "-1");
        to.group.setAttribute("tabindex", "0");
        to.group.focus();
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        zoom(here.node, true);
      } else if ((event.key === "Escape" || event.key === "Backspace") && top.parent) {
        event.preventDefault();
        zoom(top.parent, true);
      }
    });
    holder.replaceChildren(drawing);
    tell(top);
    if (focus) boxes[0].group.focus();
  };
  const self = new Map();
  const collect = (node) => {
    if (node.self) self.set(node.name, (self.get(node.name) || 0) + node.self);
    for (const child of node.children.values()) collect(child);
  };
  collect(root);
  const rows = [...self].sort((one, other) => other[1] - one[1]).slice(0, 10);
  const table = el("table", { class: "top" }, el("caption", { class: "unseen" }, "Functions in which most time was spent"),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Most time in"), el("th", { scope: "col", class: "n" }, "Samples"), el("th", { scope: "col", class: "n" }, "Part"))),
    el("tbody", {}, ...rows.map(([name, samples]) => el("tr", {}, el("td", {}, name), el("td", { class: "n" }, String(samples)),
      el("td", { class: "n" }, ((100 * samples) / (root.total || 1)).toFixed(1) + " %")))));
  $("look-body").replaceChildren(at, holder, table);
  zoom(root, false);
}

function lookText() {
  const { said, kind } = shown;
  if (kind === "flame") return Object.entries(said.folded).map(([stack, samples]) => stack + " " + samples).join("\n") + "\n";
  return said.threads.map((thread) => thread.name + ":\n" + thread.frames.map((one) => '  File "' + one.file + '", line ' + one.line + " in " + one.function + "\n").join("")).join("\n");
}

// --- the beginning ---------------------------------------------------------------------------------------------------

drawThroughput = frame("throughput", "Calls a second", [["ok", "all"], ["bad", "failed"]]);
drawLatency = frame("latency", "Time of a call", [["ok", "p50"], ["slow", "p99"]]);
$("drain").addEventListener("click", drain);
$("failures-all").addEventListener("click", () => { allFailures = !allFailures; failures(); });
$("look-close").addEventListener("click", () => $("look").close());
$("look").addEventListener("close", () => { shown.number_ += 1; });
$("look-again").addEventListener("click", () => look(shown.kind, shown.pool, shown.number));
$("look-time").addEventListener("change", () => { if (!$("look-again").disabled) look(shown.kind, shown.pool, shown.number); });
$("look-idle-box").addEventListener("change", showLook);
$("look-own-box").addEventListener("change", showLook);
window.addEventListener("resize", draw);
$("look-copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(lookText());
    put($("look-note"), "Copied.");
  } catch {
    put($("look-note"), "The browser does not let this page copy.");
  }
});
document.addEventListener("visibilitychange", draw);
live();
