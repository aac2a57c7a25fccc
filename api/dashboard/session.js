// The key, kept in this tab's session alone and sent as a header alone; and what the API answers or refuses.

import { parse } from "./visible.js";

const KEY = "freshet.key";

export const key = () => sessionStorage.getItem(KEY);
export const keepKey = (text) => sessionStorage.setItem(KEY, text);
export const forgetKey = () => sessionStorage.removeItem(KEY);

/** Why there is no answer: `kind` is key, forbidden, wrong, waiting or away; the message says what to do. */
export class Refusal extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

const sentence = (text) => (text ? `${text[0].toUpperCase()}${text.slice(1)}`.replace(/[.:]?$/, ".") : "");

function refusal(status, said) {
  if (status === 401 && said.includes("expired"))
    return new Refusal(
      "key",
      "This API key has expired. Make another with “freshet keys add NAME --expires 90d” and sign in with it.",
    );
  if (status === 401)
    return new Refusal(
      "key",
      "This API key is not known here. Check that all of it was copied, or make one with “freshet keys add NAME”.",
    );
  if (status === 403)
    return new Refusal("forbidden", `${sentence(said)} Sign in with a key that may, or choose another project.`);
  if (status === 429) return new Refusal("waiting", `${sentence(said)} It is asked again in a moment.`);
  if (status === 503) return new Refusal("waiting", `${sentence(said)} It is asked again in a moment.`);
  return new Refusal(status >= 500 ? "waiting" : "wrong", sentence(said || `The API answered ${status}.`));
}

/** The response to a GET, with the key. Raises Refusal. */
export async function get(path, { parameters = {}, headers = {}, signal } = {}) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(parameters))
    if (value !== "" && value != null) url.searchParams.set(name, value);
  let response;
  try {
    response = await fetch(url, {
      headers: { "X-API-KEY": key() ?? "", ...headers },
      signal,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(
      "away",
      "The API does not answer. See that “freshet api” runs; this page goes on by itself when it does.",
    );
  }
  if (response.ok) return response;
  let said = "";
  try {
    said = (await response.json()).error.message;
  } catch {
    /* a proxy in between may answer in its own form */
  }
  throw refusal(response.status, said);
}

/** An endpoint's answer: its JSON, the time it is exact as of and the one it is complete until, both in ms. */
export async function ask(endpoint, parameters, options = {}) {
  const response = await get(`api/endpoints/${endpoint}`, {
    parameters,
    headers: { "Cache-Control": "no-cache" },
    ...options,
  });
  const answer = parse(await response.text());
  const complete = Date.parse(response.headers.get("Freshet-Complete-Until") ?? "");
  return {
    ...answer,
    age: Number(response.headers.get("Age") ?? 0),
    complete,
    received: Date.now(),
    server: Date.parse(response.headers.get("Date") ?? ""),
  };
}
