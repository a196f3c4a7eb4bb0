"""Counts a view of each page that FastAPI serves, without keeping the page waiting.

    handfast counters serve --data views &
    pip install fastapi uvicorn httpx
    COUNTERS_URL=http://127.0.0.1:8080 PORT=3000 python fastapi_app.py
    curl http://127.0.0.1:3000/ads/4711
"""

import asyncio
import logging
import os
import uuid
from contextlib import asynccontextmanager

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

COUNTERS = os.environ.get("COUNTERS_URL", "http://127.0.0.1:8080")
TOKEN = os.environ.get("COUNTERS_TOKEN")
# Views that wait for an answer; more are given up, so that a service that is away does not fill the memory.
WAITING_MAX = 1000
ATTEMPTS = 5

log = logging.getLogger("uvicorn.error")
# A task that nobody holds may be collected before it has ended.
waiting: set[asyncio.Task] = set()


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with httpx.AsyncClient(base_url=COUNTERS, timeout=5) as client:
        app.state.counters = client
        yield
        # The views of the last pages.
        await asyncio.gather(*waiting)


app = FastAPI(lifespan=lifespan)


async def count(kind: str, item: str, view: dict) -> None:
    """Sends a view, and sends it again if it may not have been counted. With its key it is counted once, however often it is sent."""
    headers = {"idempotency-key": str(uuid.uuid4())}
    if TOKEN:
        headers["authorization"] = f"Bearer {TOKEN}"
    why = ""
    for attempt in range(ATTEMPTS):
        try:
            answer = await app.state.counters.post(f"/v1/{kind}/{item}/views", json=view, headers=headers)
            if answer.is_success:
                return
            why = answer.text
            if answer.status_code not in (429, 503):
                break
        except httpx.HTTPError as error:
            why = repr(error)
        await asyncio.sleep(0.2 * 2**attempt)
    log.warning("a view of %s/%s was not counted: %s", kind, item, why)


@app.middleware("http")
async def count_views(request: Request, call_next):
    """Counts a view of the item of a page `/ads/ID`, when the page is made."""
    response = await call_next(request)
    kind, _, item = request.url.path.strip("/").partition("/")
    if request.method == "GET" and kind == "ads" and item and response.status_code < 400 and len(waiting) < WAITING_MAX:
        agent = request.headers.get("user-agent", "")
        view = {"visitor": f"{request.client.host if request.client else ''} {agent}"[:200]}
        if agent:
            view["user_agent"] = agent[:1000]
        task = asyncio.create_task(count(kind, item, view))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
    return response


@app.get("/ads/{item}")
async def ad(item: int) -> HTMLResponse:
    return HTMLResponse(f"<h1>Ad {item}</h1>")


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "3000")))
