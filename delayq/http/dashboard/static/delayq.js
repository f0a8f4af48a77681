// What pages gain with JavaScript: times in the reader's own zone, and parts that stay true. Without it all works too.
"use strict";

(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const clock = new Intl.DateTimeFormat(undefined, {
    day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
  });
  const UNITS = [["d", 86400000], ["h", 3600000], ["m", 60000], ["s", 1000]];
  const now = Number(document.body.dataset.now);
  const ahead = now ? now - Date.now() : 0; // how far the server's clock is ahead of this one

  const span = (ms) => {
    let left = Math.round(ms / 1000) * 1000;
    const words = [];
    for (const [letter, size] of UNITS) {
      const whole = Math.floor(left / size);
      left -= whole * size;
      if (whole || words.length) words.push(whole ? whole + letter : "");
      if (words.length === 2) break;
    }
    return words.filter(Boolean).join(" ") || "0s";
  };
  const far = (ms, now) => (Math.abs(ms - now) < 1000 ? "now" : ms > now ? `in ${span(ms - now)}` : `${span(now - ms)} ago`);
  const put = (element, text) => {
    if (element && element.textContent !== text) element.textContent = text;
  };

  const tellTimes = (root) => {
    const now = Date.now() + ahead;
    for (const time of root.querySelectorAll("time[data-ms]")) {
      const ms = Number(time.dataset.ms);
      const said = far(ms, now);
      if (time.hasAttribute("data-far")) put(time, said);
      else {
        put(time.querySelector(".clock"), clock.format(ms));
        put(time.querySelector(".far"), said);
      }
    }
  };

  const localize = () => {
    put(document.querySelector("[data-zone]"), `Times are those of ${zone}; pointing at one shows UTC.`);
    for (const field of document.querySelectorAll("[data-own-zone]")) field.value = zone;
    tellTimes(document);
  };

  // Rows that are ticked stay ticked when their table is sent anew. Those that left it are sent with the form all the
  // same, so that the answer tells what became of them.
  const picks = new Set();
  const isPick = (element) => element && element.matches && element.matches('input[type="checkbox"][name="pick"]');
  const tellPicks = () => {
    const form = document.getElementById("picked");
    if (!form) return;
    const boxes = [...document.querySelectorAll('input[type="checkbox"][name="pick"]')];
    const shown = new Set(boxes.map((box) => box.value));
    for (const box of boxes) box.checked = picks.has(box.value);
    form.querySelectorAll("[data-left]").forEach((one) => one.remove());
    for (const value of picks) {
      if (shown.has(value)) continue;
      const left = document.createElement("input");
      Object.assign(left, { type: "hidden", name: "pick", value });
      left.dataset.left = "";
      form.append(left);
    }
    put(form.querySelector("[data-picked]"), picks.size ? `${picks.size} ticked` : "");
  };
  document.addEventListener("change", (event) => {
    if (!isPick(event.target)) return;
    if (event.target.checked) picks.add(event.target.value); else picks.delete(event.target.value);
    tellPicks();
  });

  // Whoever reads or types inside a part keeps it as it is; a box that was opened stays open.
  const busy = (part) => part.contains(document.activeElement) && !isPick(document.activeElement) || String(getSelection()) !== "" && part.contains(getSelection().anchorNode);
  const replace = (part, html) => {
    if (part.dataset.html === html || busy(part)) return;
    const open = [...part.querySelectorAll("details")].map((one) => one.open);
    const first = part.dataset.html === undefined;
    part.dataset.html = html;
    const focused = part.contains(document.activeElement) ? document.activeElement.value : null;
    part.innerHTML = html;
    const mark = document.querySelector('.themes input[name="mark"]');
    part.querySelectorAll('input[name="mark"]').forEach((one) => { one.value = mark.value; });
    tellPicks();
    if (focused !== null) [...part.querySelectorAll('input[name="pick"]')].find((box) => box.value === focused)?.focus();
    part.querySelectorAll("details").forEach((one, n) => { if (n < open.length && !(first && one.open)) one.open = open[n]; });
    tellTimes(part);
  };

  const reload = async () => {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) return location.reload();
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = document.getElementById("main");
    const said = document.getElementById("told").textContent;
    main.replaceChildren(...page.getElementById("main").childNodes);
    const told = document.getElementById("told");
    if (said && !told.textContent) { // it was told to this page once; the one that was fetched knows nothing of it
      told.textContent = said;
      told.classList.remove("hidden");
    }
    localize();
  };

  const follow = (live) => {
    const button = live.querySelector("button");
    const told = document.getElementById("told");
    let source = null;
    let state = live.dataset.state;
    let down = false;

    const say = (text, bad) => {
      const line = document.getElementById("told") || told;
      line.textContent = text;
      line.classList.toggle("hidden", !text);
      line.classList.toggle("is-down", Boolean(bad));
      live.classList.toggle("is-down", Boolean(bad));
    };
    const hear = (event) => {
      const said = JSON.parse(event.data);
      if (said.down) {
        down = true;
        return say(`${said.down.what} What is shown is older.`, true);
      }
      if (down) say("", false);
      down = false;
      const box = document.createElement("template");
      for (const [id, html] of Object.entries(said.parts)) {
        const part = document.getElementById(id);
        if (part) replace(part, html);
        if (id === "job_state") {
          box.innerHTML = html;
          const now = box.content.querySelector("[data-state]").dataset.state;
          if (state && now !== state && now !== "absent") { state = now; reload(); }
        }
      }
    };
    const start = () => {
      source = new EventSource(live.dataset.live);
      source.onmessage = hear;
      source.onerror = () => { down = true; say("The server does not answer. What is shown is older.", true); };
    };
    const stop = () => { if (source) source.close(); source = null; };
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      if (on) start(); else stop();
    });
    addEventListener("pagehide", stop);
    live.hidden = false;
    start();
  };

  document.querySelectorAll('input[type="checkbox"][name="pick"]:checked').forEach((box) => picks.add(box.value));
  tellPicks();
  localize();
  setInterval(() => tellTimes(document), 1000);
  const goesOn = document.querySelector("form[data-goes-on]");
  if (goesOn) setTimeout(() => goesOn.requestSubmit(), 300);
  const live = document.querySelector("[data-live]");
  if (live && "EventSource" in window) follow(live);
})();
