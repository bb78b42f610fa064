"""A collector for tests: reads OTLP over HTTP with OpenTelemetry's own definitions, independently of the encoder.

Prints its port, then one line of JSON for each span.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


def value(any_value):
    return getattr(any_value, any_value.WhichOneof("value"))


def attributes(pairs):
    found = {pair.key: value(pair.value) for pair in pairs}
    assert len(found) == len(pairs), "an attribute is there twice"
    return found


def known(message):
    assert len(UnknownFieldSet(message)) == 0, message
    return message


def shown(span, resource, headers):
    return {
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "name": span.name,
        "kind": Span.SpanKind.Name(span.kind),
        "began": span.start_time_unix_nano,
        "ended": span.end_time_unix_nano,
        "attributes": attributes(span.attributes),
        "links": [link.span_id.hex() for link in span.links],
        "status": Status.StatusCode.Name(span.status.code),
        "error": span.status.message,
        "resource": resource,
        "key": headers.get("x-api-key"),
    }


class Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/traces", self.path
        assert self.headers["content-type"] == "application/x-protobuf"
        request = ExportTraceServiceRequest.FromString(body)
        for of_resource in known(request).resource_spans:
            resource = attributes(known(known(of_resource).resource).attributes)
            for of_scope in of_resource.scope_spans:
                for span in known(of_scope).spans:
                    print(json.dumps(shown(known(span), resource, self.headers)), flush=True)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
print(server.server_port, flush=True)
server.serve_forever()
