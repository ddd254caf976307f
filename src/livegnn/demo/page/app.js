// The demo's page. The server pushes the state a few times a second (/demo/feed); everything shown comes from there
// and, for the chosen member, from /demo/members/ID. Nothing is loaded from anywhere else.

const $ = (id) => document.getElementById(id);
const percent = (risk) => `${Math.round(risk * 100)}%`;
const count = (n) => Math.round(n).toLocaleString("en-GB");
const day = (seconds, options = { day: "numeric", month: "long", year: "numeric" }) =>
  new Date(seconds * 1000).toLocaleDateString("en-GB", { timeZone: "UTC", ...options });
const milliseconds = (ms) => (ms == null ? "–" : ms >= 100 ? ms.toFixed(0) : ms >= 10 ? ms.toFixed(1) : ms.toFixed(2));
const signed = (points) => `${points < 0 ? "−" : "+"}${Math.abs(points).toFixed(Math.abs(points) < 10 ? 1 : 0)}`;
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// Half of what a risk can be is already alarming: the colours end there.
const colour = (risk) =>
  `color-mix(in oklab, var(--distrust) ${Math.round(Math.min(1, risk / 0.5) * 100)}%, var(--trust))`;

let state = null; // the last state from the server
let chosen = null; // the id of the member on the right
let shown = null; // what the server last said of that member
const rates = []; // events per second, one value per state

function element(name, attributes = {}, ...children) {
  const svg = ["circle", "line", "path", "g", "text", "title"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") node.addEventListener("click", value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// ---- figures --------------------------------------------------------------------------------------------------

function pen(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return [context, width, height];
}

function drawRate() {
  const [context, width, height] = pen($("rate-line"));
  if (rates.length < 2) return;
  const top = Math.max(...rates, 1);
  const x = (i) => width - (rates.length - 1 - i) * (width / 119);
  const y = (rate) => height - 2 - (rate / top) * (height - 5);
  context.beginPath();
  rates.forEach((rate, i) => context.lineTo(x(i), y(rate)));
  context.strokeStyle = style("--accent");
  context.lineWidth = 1.5;
  context.stroke();
  context.lineTo(x(rates.length - 1), height);
  context.lineTo(x(0), height);
  context.globalAlpha = 0.12;
  context.fillStyle = style("--accent");
  context.fill();
}

function drawReached(reached) {
  const [context, width, height] = pen($("reached-bars"));
  if (!reached.length) return;
  const top = Math.max(...reached, 1);
  const step = width / 240;
  context.fillStyle = style("--accent");
  reached.forEach((nodes, i) => {
    const tall = Math.max(1, (nodes / top) * (height - 1));
    context.globalAlpha = 0.35 + 0.65 * (tall / height);
    context.fillRect(width - (reached.length - i) * step, height - tall, Math.max(1, step - 1.5), tall);
  });
}

function drawState() {
  const { progress, latency, reached, movers } = state;
  $("date").textContent = day(progress.date);
  $("replayed").textContent = count(progress.replayed);
  $("total").textContent = count(progress.total);
  $("progress").value = progress.total ? progress.replayed / progress.total : 1;
  $("pause").textContent = progress.done ? "Finished" : progress.paused ? "Resume" : "Pause";
  $("pause").disabled = progress.done;
  if (document.activeElement !== $("speed")) $("speed").value = sliderOf(progress.speed);
  $("speed-text").textContent = speedText(progress.speed);
  $("rate").textContent = count(state.rate);
  $("ratings-rate").textContent = count(state.ratings_rate);
  $("p50").textContent = milliseconds(latency.p50);
  $("whole-p50").textContent = milliseconds(latency.p50);
  $("p99").textContent = milliseconds(latency.p99);
  $("apply-p50").textContent = milliseconds(latency.apply_p50);
  $("apply-p99").textContent = milliseconds(latency.apply_p99);
  const sorted = [...reached].sort((a, b) => a - b);
  $("reached").textContent = sorted.length ? count(sorted[sorted.length >> 1]) : "–";
  $("reached-max").textContent = sorted.length ? count(sorted[sorted.length - 1]) : "–";
  $("nodes").textContent = count(state.nodes);
  $("edges").textContent = count(state.edges);
  $("seq").textContent = count(state.seq);
  $("window").textContent = count(state.window);
  drawRate();
  drawReached(reached);
  drawMovers(movers);
  drawVerdict(state.verification);
}

function drawMovers(movers) {
  $("movers-empty").hidden = movers.length > 0;
  const end = (value) => `${Math.min(100, value * 100).toFixed(1)}%`;
  $("movers").replaceChildren(
    ...movers.map(({ id, before, after }) => {
      const [low, high] = [Math.min(before, after), Math.max(before, after)];
      const bar = element("i", { style: `left:${end(low)};width:${end(high - low)};background:${colour(after)}` });
      const span = element("span", { class: "span" }, bar);
      span.append(element("b", { class: "before", style: `left:${end(before)}` }));
      span.append(element("b", { class: "after", style: `left:${end(after)};background:${colour(after)}` }));
      const button = element(
        "button",
        {
          type: "button",
          title: `Member ${id}: from ${percent(before)} to ${percent(after)}`,
          "aria-pressed": String(id === chosen),
          onclick: () => choose(id, true),
        },
        element("span", { class: "id" }, String(id)),
        span,
        element("span", { class: `delta ${after > before ? "up" : "down"}` }, signed((after - before) * 100)),
      );
      return element("li", {}, button);
    }),
  );
}

function drawVerdict(verification) {
  $("verdict").hidden = verification == null;
  if (verification == null) return;
  const { ok, max_difference, bound, checked, seconds } = verification;
  $("verdict").classList.toggle("bad", !ok);
  $("verdict-mark").textContent = ok ? "✓" : "!";
  $("verdict-title").textContent = ok
    ? `All ${count(checked)} predictions are what a full recomputation says.`
    : "Some predictions are not what a full recomputation says.";
  $("verdict-text").textContent =
    `Largest difference ${max_difference.toExponential(1)}, promised at most ${bound.toExponential(1)}; ` +
    `recomputing everything in float64 took ${seconds.toFixed(2)} s.`;
}

// ---- the chosen member ----------------------------------------------------------------------------------------

function choose(id, byHand = false) {
  if (byHand) $("follow").checked = false;
  if (byHand) history.replaceState(null, "", `#member=${id}`);
  if (id === chosen) return;
  chosen = id;
  if (state) drawMovers(state.movers);
  refreshMember();
}

async function refreshMember() {
  if (chosen == null) return;
  const id = chosen;
  const answer = await fetch(`/demo/members/${id}`);
  if (id !== chosen) return;
  if (!answer.ok) {
    $("member-name").textContent = `No member ${id} yet`;
    return;
  }
  shown = await answer.json();
  if (state) drawMember();
}

function drawMember() {
  const { id, risk, received, negative, given, ratings, raters } = shown;
  $("member-name").textContent = `Member ${id}`;
  $("member-risk").textContent = `${(risk * 100).toFixed(1)}%`;
  $("member-risk").style.color = colour(risk);
  $("member-summary").textContent =
    `${count(received)} ratings received, ${count(negative)} of them negative; ${count(given)} given`;
  drawHistory(shown.history, ratings);
  drawCircle(id, risk, raters);
  $("raters").replaceChildren(
    ...raters.map(({ id: rater, rating, time, risk: own, effect }) =>
      element(
        "tr",
        {},
        element(
          "td",
          {},
          element("button", { type: "button", onclick: () => choose(rater, true) }, String(rater)),
          element("small", {}, day(time, { month: "short", year: "numeric" })),
        ),
        element("td", {}, mark(rating)),
        element(
          "td",
          {},
          element("span", { class: "meter" },
            element("i", { style: `width:${Math.min(100, own * 100)}%;background:${colour(own)}` })),
          percent(own),
        ),
        element("td", { class: effect > 0.0005 ? "up" : effect < -0.0005 ? "down" : "" }, signed(effect * 100)),
      ),
    ),
  );
  $("raters-more").textContent =
    raters.length < received ? `The newest ${raters.length} of ${count(received)} ratings. ` : "";
  $("raters-more").textContent += raters.length ? "Effect: points of risk, by asking what if it had not been given." : "No ratings received yet.";
}

const mark = (rating) =>
  element("span", { class: `mark ${rating < 0 ? "bad" : "good"}` }, `${rating < 0 ? "−" : "+"}${Math.abs(rating)}`);

const margin = { left: 34, right: 8, top: 8, bottom: 34 };

function axes(width, height) {
  // The member may be known a little further than the state.
  const last = Math.max(state.progress.date, state.progress.start + 86400, shown.history.at(-1)?.[0] ?? 0);
  // A newcomer's chart begins shortly before the newcomer does.
  const born = shown.history.length ? shown.history[0][0] : state.progress.start;
  const first = Math.max(state.progress.start, born - 0.04 * (last - born) - 3600);
  const highest = Math.max(0.2, ...shown.history.map((point) => point[1]));
  const top = Math.min(1, Math.ceil(highest * 1.05 * 10) / 10);
  const x = (time) => margin.left + ((time - first) / (last - first)) * (width - margin.left - margin.right);
  const y = (risk) => margin.top + (1 - risk / top) * (height - margin.top - margin.bottom);
  return { first, last, top, x, y };
}

function drawHistory(points, ratings) {
  const svg = $("history");
  const [width, height] = [svg.clientWidth, svg.clientHeight];
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const { first, last, top, x, y } = axes(width, height);
  const parts = [];
  const tick = top > 0.6 ? 0.2 : 0.1;
  for (let risk = 0; risk <= top + 1e-9; risk += tick) {
    parts.push(element("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(risk), y2: y(risk) }));
    parts.push(element("text", { x: margin.left - 6, y: y(risk) + 4, "text-anchor": "end" }, percent(risk)));
  }
  const labels = Math.max(2, Math.min(6, Math.floor(width / 130)));
  for (let i = 0; i < labels; i++) {
    const time = first + ((last - first) * i) / (labels - 1);
    const anchor = i === 0 ? "start" : i === labels - 1 ? "end" : "middle";
    const text = day(time, { month: "short", year: "numeric", ...(last - first < 1e7 ? { day: "numeric" } : {}) });
    parts.push(element("text", { x: x(time), y: height - 4, "text-anchor": anchor }, text));
  }
  if (points.length) {
    const now = points[points.length - 1][1];
    let path = `M${x(points[0][0])} ${y(points[0][1])}`;
    for (const [time, risk] of points.slice(1)) path += `H${x(time)}V${y(risk)}`;
    path += `H${x(last)}`;
    const floor = `V${y(0)}H${x(points[0][0])}Z`;
    parts.push(element("path", { d: path + floor, style: `fill:${colour(now)};opacity:.1` }));
    parts.push(element("path", { class: "line", d: path, style: `stroke:${colour(now)}` }));
  }
  for (const [time, rating] of ratings) {
    if (time < first) continue;
    const dot = element("circle", {
      cx: x(time), cy: height - margin.bottom + 12, r: 2 + Math.abs(rating) / 3,
      style: `fill:var(${rating < 0 ? "--distrust" : "--trust"});opacity:.75`,
    });
    dot.append(element("title", {}, `${rating > 0 ? "+" : ""}${rating}, ${day(time)}`));
    parts.push(dot);
  }
  svg.replaceChildren(...parts);
}

$("history").addEventListener("pointermove", (event) => {
  if (!shown?.history.length) return;
  const box = $("history").getBoundingClientRect();
  const { first, last, x } = axes(box.width, box.height);
  const share = (event.clientX - box.left - margin.left) / (box.width - margin.left - margin.right);
  const time = first + Math.min(1, Math.max(0, share)) * (last - first);
  const point = shown.history.findLast((known) => known[0] <= time) ?? shown.history[0];
  $("tip").hidden = false;
  $("tip").style.left = `${Math.min(box.width - 80, Math.max(80, x(time)))}px`;
  $("tip").textContent = `${(point[1] * 100).toFixed(1)}% · ${day(time)}`;
});
$("history").addEventListener("pointerleave", () => ($("tip").hidden = true));

function drawCircle(id, risk, raters) {
  const parts = [element("circle", { class: "ring", r: 112, style: "stroke:var(--line);stroke-width:1" })];
  const place = (i) => {
    const angle = (i / Math.max(raters.length, 1)) * 2 * Math.PI - Math.PI / 2;
    return [112 * Math.cos(angle), 112 * Math.sin(angle)];
  };
  raters.forEach(({ rating }, i) => {
    const [x, y] = place(i);
    parts.push(element("line", {
      x1: x, y1: y, x2: 0, y2: 0, "stroke-width": 0.8 + Math.abs(rating) * 0.35,
      style: `stroke:var(${rating < 0 ? "--distrust" : "--trust"});opacity:${rating < 0 ? 0.8 : 0.45}`,
    }));
  });
  raters.forEach(({ id: rater, rating, risk: own }, i) => {
    const [x, y] = place(i);
    const ball = element("circle", { cx: x, cy: y, r: 12, style: `fill:${colour(own)}` });
    ball.append(element("title", {}, `Member ${rater} gave ${rating}; own risk ${percent(own)}`));
    const label = element("text", { x: x * 1.22, y: y * 1.22 + 3 }, String(rater));
    parts.push(element("g", { class: "rater", onclick: () => choose(rater, true) }, ball, label));
  });
  parts.push(element("circle", { r: 27, style: `fill:${colour(risk)}` }));
  parts.push(element("text", { class: "centre", y: 5 }, percent(risk)));
  $("circle").setAttribute("aria-label", `The members who rated ${id}`);
  $("circle").replaceChildren(...parts);
}

// ---- what the visitor can do ----------------------------------------------------------------------------------

// The slider is logarithmic, 1 to 5,000 ratings a second; its right end is as fast as possible.
const speedOf = (slider) => (slider >= 100 ? null : 5000 ** (slider / 99));
const sliderOf = (speed) => (speed == null ? 100 : Math.min(99, (99 * Math.log(speed)) / Math.log(5000)));
const speedText = (speed) => (speed == null ? "as fast as it can" : `${speed < 10 ? speed.toFixed(1) : count(speed)} ratings/s`);

const control = (change) =>
  fetch("/demo/replay", {
    method: "PUT",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(change),
  });

$("pause").addEventListener("click", () => control({ paused: !state?.progress.paused }));
$("speed").addEventListener("input", () => {
  const speed = speedOf(Number($("speed").value));
  $("speed-text").textContent = speedText(speed);
  control({ speed: speed ?? "unlimited" });
});
$("speed").addEventListener("change", () => $("speed").blur());
$("member-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (/^\d+$/.test($("member-id").value)) choose(Number($("member-id").value), true);
});

const dark = () =>
  (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
$("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  if (state) drawState();
});
const theme = new URLSearchParams(location.search).get("theme") ?? localStorage.getItem("theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;

// ---- the feed -------------------------------------------------------------------------------------------------

function connection(text, kind) {
  $("connection").textContent = text;
  $("connection").className = `pill ${kind}`;
}

const linked = /^#member=(\d+)$/.exec(location.hash);
if (linked) choose(Number(linked[1]), true);

const feed = new EventSource("/demo/feed");
let refreshed = -Infinity; // the first member is shown at once
feed.addEventListener("message", (message) => {
  const first = state == null;
  state = JSON.parse(message.data);
  connection(state.progress.done ? "finished" : state.progress.paused ? "paused" : "live", state.progress.done ? "" : "live");
  if (!state.progress.done && !state.progress.paused) rates.push(state.rate);
  if (rates.length > 120) rates.shift();
  drawState();
  if (first && shown) drawMember();
  if ($("follow").checked && state.movers.length && performance.now() - refreshed > 4000) {
    // Long enough on each to be read.
    refreshed = performance.now();
    choose(state.movers[0].id);
  }
});
feed.addEventListener("error", () => connection("connection lost", "lost"));
setInterval(refreshMember, 1000);
addEventListener("resize", () => {
  if (state) drawState();
  if (state && shown) drawMember();
});
