// The page as a whole: who is signed in, what is chosen, and when each panel is asked anew.

import { setUpFamilies, showFamilies } from "./families.js";
import { setZone, zone, zoneText } from "./format.js";
import { noteAnswer, showMetrics, tick } from "./freshness.js";
import { INTERVALS } from "./intervals.js";
import { setUpInvocations, showInvocations } from "./invocations.js";
import { $, make, say, showState } from "./page.js";
import { Refusal, forgetKey, get, keepKey, key } from "./session.js";
import { restart, setUpTail, showTail, stopTail } from "./tail.js";

const EVERY = 5000;
const AGAIN = 3000;
const PATIENCE = 30000; // after which what was asked is given up and asked anew
const PROJECT = "freshet.project",
  INTERVAL = "freshet.interval";
let interval = sessionStorage.getItem(INTERVAL) in INTERVALS ? sessionStorage.getItem(INTERVAL) : "1hr";
let project = "",
  timer = null,
  abort = null,
  asking = 0,
  began = 0,
  seesRejects = false,
  typing,
  again;

function setUp() {
  setUpInvocations();
  setUpFamilies();
  setUpTail();
  $("intervals").append(
    ...Object.entries(INTERVALS).map(([name, { label }]) => {
      const radio = make("input", { type: "radio", name: "interval", value: name, checked: name === interval });
      radio.addEventListener("change", () => {
        interval = name;
        sessionStorage.setItem(INTERVAL, name);
        refresh();
      });
      return make("label", {}, radio, make("span", {}, label));
    }),
  );
  const typed = () => choose($("project").value.trim());
  $("project").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(typed, 400);
  });
  $("project").addEventListener("change", typed);
  $("project-choice").addEventListener("change", () => choose($("project-choice").value));
  $("sign-in").addEventListener("submit", (event) => {
    event.preventDefault();
    keepKey($("key").value.trim());
    signIn();
  });
  $("sign-out").addEventListener("click", () => signOut(""));
  $("zone").addEventListener("click", () => {
    setZone(zone() === "utc" ? "local" : "utc");
    nameZone();
    refresh();
    restart();
  });
  nameZone();
  setInterval(tick, 250);
  if (key()) signIn();
  else signOut("");
}

function nameZone() {
  const [now, other] = zone() === "utc" ? ["UTC", "local time"] : ["Local time", "UTC"];
  $("zone").textContent = now;
  $("zone").setAttribute("aria-label", `${now}: switch to ${other}`);
  $("zone-said").textContent = `Times are in ${zoneText()}.`;
}

async function signIn() {
  clearTimeout(again);
  try {
    const own = await (await get("api/key")).json();
    if (!own.allow.includes("query"))
      throw new Refusal("key", "This key may not query. Make one that may: “freshet keys add NAME --allow query”.");
    open(own);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    if (error.kind === "key") signOut(error.message);
    else {
      showSignIn(error.message); // and try again with the same key, for as long as nobody types another
      again = setTimeout(() => {
        if (key() && !$("key").value) signIn();
      }, AGAIN);
    }
  }
}

function signOut(why) {
  forgetKey();
  clearTimeout(again);
  clearInterval(timer);
  abort?.abort();
  stopTail();
  project = "";
  showSignIn(why);
  $("key").focus();
}

function showSignIn(why) {
  for (const id of ["panels", "controls", "sign-out"]) $(id).hidden = true;
  $("sign-in").hidden = false;
  $("key").value = "";
  $("refusal").textContent = why;
}

function open({ projects, endpoints }) {
  seesRejects = !projects && !endpoints;
  $("sign-in").hidden = true;
  for (const id of ["panels", "controls", "sign-out"]) $(id).hidden = false;
  $("project").hidden = Boolean(projects);
  $("project-choice").hidden = !projects;
  $("project-choice").replaceChildren(...(projects ?? []).map((name) => make("option", { value: name }, name)));
  const before = sessionStorage.getItem(PROJECT) ?? "";
  const first = projects && !projects.includes(before) ? projects[0] : before;
  $("project").value = first;
  $("project-choice").value = first;
  say("Signed in");
  choose(first, true);
  clearInterval(timer);
  timer = setInterval(() => {
    if (!document.hidden && (!asking || Date.now() - began > PATIENCE)) refresh();
  }, EVERY);
  $(projects ? "project-choice" : "project").focus();
}

function choose(name, anew = false) {
  if (name === project && !anew) return;
  project = name;
  sessionStorage.setItem(PROJECT, name);
  const said = name ? "Asking …" : "Name a project above: its reference is in the host of its URLs.";
  for (const panel of ["invocations", "functions", "families", "tail"]) showState(panel, said);
  if (name) showTail(name);
  else stopTail();
  refresh();
}

/** Ask for everything anew; a panel that is refused says so, and the others go on. */
function refresh() {
  abort?.abort();
  abort = new AbortController();
  began = Date.now();
  const { signal } = abort;
  const ask = async (panels, show) => {
    asking += 1;
    try {
      noteAnswer(await show());
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Refusal)) throw error;
      if (error.kind === "key") signOut(error.message);
      for (const panel of panels) showState(panel, error.message, error.kind === "waiting" ? "note" : "bad");
    } finally {
      asking -= 1;
    }
  };
  ask(["rejects"], () => showMetrics(signal, seesRejects));
  if (!project) return;
  ask(["invocations", "functions"], () => showInvocations(project, interval, signal));
  ask(["families"], () => showFamilies(project, interval, signal));
}

setUp();
