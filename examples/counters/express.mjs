// Counts a view of each page that Express serves, without keeping the page waiting.
//
//   handfast counters serve --data views &
//   npm install express
//   COUNTERS_URL=http://127.0.0.1:8080 PORT=3000 node express.mjs
//   curl http://127.0.0.1:3000/ads/4711
import { randomUUID } from "node:crypto";
import express from "express";

const counters = process.env.COUNTERS_URL ?? "http://127.0.0.1:8080";
const token = process.env.COUNTERS_TOKEN;
const WAITING_MAX = 1000; // Views that wait for an answer; more are given up, so that a service that is away does not fill the memory.
const ATTEMPTS = 5;
let waiting = 0;

// Sends a view, and sends it again if it may not have been counted. With its key it is counted once, however often it is sent.
async function count(kind, id, view) {
  const headers = { "content-type": "application/json", "idempotency-key": randomUUID() };
  if (token) headers.authorization = `Bearer ${token}`;
  let why = "";
  for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
    try {
      const answer = await fetch(`${counters}/v1/${kind}/${encodeURIComponent(id)}/views`, {
        method: "POST", headers, body: JSON.stringify(view), signal: AbortSignal.timeout(5000),
      });
      if (answer.ok) return;
      why = await answer.text();
      if (answer.status !== 503 && answer.status !== 429) break;
    } catch (error) {
      why = error.message;
    }
    if (attempt < ATTEMPTS) await new Promise((resolve) => setTimeout(resolve, 200 * 2 ** attempt));
  }
  console.warn(`a view of ${kind}/${id} was not counted: ${why}`);
}

// Counts a view of the item that a page shows, when the page was sent. `kind` is the kind of the items, and the parameter `id` of the route is the item.
export function countViews(kind) {
  return (request, response, next) => {
    response.once("finish", () => {
      if (response.statusCode >= 400 || waiting >= WAITING_MAX) return;
      const view = { visitor: `${request.ip} ${request.get("user-agent") ?? ""}`.slice(0, 200) };
      if (request.get("user-agent")) view.user_agent = request.get("user-agent").slice(0, 1000);
      waiting += 1;
      count(kind, request.params.id, view).finally(() => (waiting -= 1));
    });
    next();
  };
}

const app = express();
app.get("/ads/:id", countViews("ads"), (request, response) => {
  response.send(`<h1>Ad ${request.params.id.replace(/[^\w-]/g, "")}</h1>`);
});

const server = app.listen(process.env.PORT ?? 3000, "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
