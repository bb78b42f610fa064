#!/usr/bin/env python3
"""A capability in Python: greets people by name and counts those it has heard of.

In the configuration of `millrace serve`:

    [[capability]]
    name = "Greeter"
    command = ["python3", "examples/capabilities/python/greeter.py"]

Then: millrace send '{"kind":"query","type":"Greeter.Hello","data":{"name":"Ada"},"metadata":{"id":"1","timestamp":0}}'
"""

import json
import sys

NAME = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "description": "Who it is"}}}

MANIFEST = {
    "name": "Greeter",
    "description": "Says hello",
    "inbound": [
        {"kind": "query", "type": "Greeter.Hello", "description": "Greets somebody by name", "data": NAME},
        {"kind": "query", "type": "Greeter.Count", "description": "How many users it has heard of"},
    ],
    "subscribes": ["User.Created"],
}

users = 0


def say(message):
    print(json.dumps(message), flush=True)


def answer(request, kind, data):
    say({"kind": kind, "type": request["type"], "data": data, "metadata": {"causation": request["metadata"]["id"]}})


say(MANIFEST)
for line in sys.stdin:  # Ends with the server.
    message = json.loads(line)
    if message["type"] == "Greeter.Hello":
        name = message["data"]["name"]
        say({"kind": "event", "type": "Greeter.Greeted", "data": {"name": name}})
        answer(message, "reply", {"text": f"Hello, {name}"})
    elif message["type"] == "Greeter.Count":
        answer(message, "reply", {"users": users})
    elif message["type"] == "User.Created":
        users += 1
        print(f"a user was created: {message['data']}", file=sys.stderr)  # Into the server's log.
