// Requests the panels again and again; the server draws them. In a replay, this script moves the position.
(() => {
  const get = id => document.getElementById(id);
  const period = Number(document.body.dataset.period);
  const end = document.body.dataset.end === undefined ? undefined : Number(document.body.dataset.end);
  const kept = ["threads", "measures", "span", "speed"].map(get).filter(e => e);
  let playing = end !== undefined, drawing = false, again = false;
  const show = () => {
    if (end === undefined) return;
    get("play").textContent = playing ? "Pause" : "Play";
    get("clock").textContent = `${Number(get("at").value).toFixed(1)} of ${end.toFixed(1)} s`;
  };
  async function draw() {
    if (drawing) { again = true; return; }
    drawing = true;
    const query = new URLSearchParams({ threads: get("threads").value, measures: get("measures").value, span: get("span").value });
    if (end !== undefined) query.set("at", get("at").value);
    try {
      const answer = await fetch(`panels?${query}`);
      if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
      get("panels").innerHTML = await answer.text();
      get("state").textContent = "";
    } catch (error) {
      get("state").textContent = `No new values: steer has ended, or ${error.message}.`;
    }
    drawing = false;
    if (again) { again = false; draw(); }
  }
  let last = performance.now();
  setInterval(() => {
    const now = performance.now();
    if (playing) {
      const at = Number(get("at").value) + (now - last) / 1000 * Number(get("speed").value);
      get("at").value = at;
      playing = end > at;
    }
    last = now;
    show();
    draw();
  }, period);
  kept.forEach(control => control.addEventListener("input", draw));
  get("controls").addEventListener("submit", event => event.preventDefault());
  get("at")?.addEventListener("input", () => { show(); draw(); });
  get("play")?.addEventListener("click", () => {
    playing = !playing;
    if (playing && Number(get("at").value) >= end) get("at").value = 0;
    show();
  });
  show();
  draw();
})();
