"""What both brokers are asked, in this order: (login, method, path, body).

A body that is text goes as it is, any other as JSON. `{c}` in a path stands for the name of the connection that is
open meanwhile. Those of LATE have figures that come late.
"""
ADMIN = "guest:guest"


def as_admin(*rows):
    return [(ADMIN, *row) if len(row) == 3 else (ADMIN, *row, None) for row in rows]


USERS = as_admin(
    ("PUT", "/users/member", {"password": "p", "tags": "management"}),
    ("PUT", "/users/member", {"password": "p", "tags": "management"}),
    ("PUT", "/users/maker", {"password": "p", "tags": "policymaker"}),
    ("PUT", "/users/watcher", {"password": "p", "tags": "monitoring"}),
    ("PUT", "/users/nobody", {"password": "p", "tags": ""}),
    ("PUT", "/users/no-tags", {"password": "p"}),
    ("PUT", "/users/no-password", {"tags": "management"}),
    ("PUT", "/users/bad-hash", {"password_hash": "not base64!", "tags": ""}),
    ("PUT", "/users/empty-hash", {"password_hash": "", "tags": ""}),
    ("PUT", "/users/bad", "{not json"),
    ("PUT", "/users/bad", "[]"),
    ("GET", "/users"), ("GET", "/users/member"), ("GET", "/users/none"), ("DELETE", "/users/none"),
    ("GET", "/users/without-permissions"), ("GET", "/users/member/permissions"),
    ("GET", "/users/none/permissions"), ("GET", "/users/member/topic-permissions"),
    ("POST", "/users/bulk-delete", {"users": ["bad-hash", "empty-hash"]}),
    ("POST", "/users/bulk-delete", {}),
    ("GET", "/auth/hash_password/x"),
    ("PUT", "/permissions/%2F/maker", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("PUT", "/permissions/%2F/maker", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("PUT", "/permissions/%2F/watcher", {"configure": "^w", "write": "^w", "read": "^w"}),
    ("PUT", "/permissions/%2F/member", {"configure": ".*", "write": ".*"}),
    ("PUT", "/permissions/%2F/member", {"configure": "(", "write": ".*", "read": ".*"}),
    ("PUT", "/permissions/none/maker", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("PUT", "/permissions/%2F/none", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("GET", "/permissions"), ("GET", "/permissions/%2F/maker"), ("GET", "/permissions/%2F/none"),
    ("DELETE", "/permissions/%2F/none"), ("GET", "/vhosts/%2F/permissions"),
    ("GET", "/vhosts/none/permissions"),
    ("PUT", "/topic-permissions/%2F/maker", {"exchange": "amq.topic", "write": "a", "read": "b"}),
    ("PUT", "/topic-permissions/%2F/maker", {"write": "a", "read": "b"}),
    ("GET", "/topic-permissions"), ("GET", "/topic-permissions/%2F/maker"),
    ("GET", "/topic-permissions/%2F/none"), ("GET", "/vhosts/%2F/topic-permissions"),
    ("DELETE", "/topic-permissions/%2F/maker"),
)

VHOSTS = as_admin(
    ("PUT", "/vhosts/other"), ("PUT", "/vhosts/other"),
    ("PUT", "/vhosts/a%2Fb%3Fc%23d%20%C3%A4", {"description": "odd", "tags": "one,two"}),
    ("GET", "/vhosts"), ("GET", "/vhosts/other"), ("GET", "/vhosts/a%2Fb%3Fc%23d%20%C3%A4"),
    ("GET", "/vhosts/none"), ("DELETE", "/vhosts/none"), ("PUT", "/vhosts/bad", "{"),
    ("PUT", "/vhosts/traced", {"tracing": "perhaps"}),
    ("PUT", "/vhost-limits/other/max-queues", {"value": 5}),
    ("PUT", "/vhost-limits/other/max-queues", {"value": "five"}),
    ("PUT", "/vhost-limits/other/max-queues", {}),
    ("PUT", "/vhost-limits/other/max-nothing", {"value": 5}),
    ("PUT", "/vhost-limits/none/max-queues", {"value": 5}),
    ("GET", "/vhost-limits"), ("GET", "/vhost-limits/other"), ("GET", "/vhost-limits/none"),
    ("DELETE", "/vhost-limits/other/max-queues"), ("DELETE", "/vhost-limits/other/max-queues"),
    ("PUT", "/user-limits/member/max-channels", {"value": 5}),
    ("PUT", "/user-limits/member/max-nothing", {"value": 5}),
    ("PUT", "/user-limits/none/max-channels", {"value": 5}),
    ("GET", "/user-limits"), ("GET", "/user-limits/member"), ("GET", "/user-limits/none"),
    ("DELETE", "/user-limits/member/max-channels"),
    ("GET", "/vhosts/other/connections"), ("GET", "/vhosts/none/connections"), ("GET", "/vhosts/none/channels"),
)

QUEUES = as_admin(
    ("PUT", "/queues/%2F/q", {"durable": True}), ("PUT", "/queues/%2F/q", {"durable": True}),
    ("PUT", "/queues/%2F/q", {"durable": False}), ("PUT", "/queues/%2F/text", {"durable": "true"}),
    ("PUT", "/queues/%2F/bad", {"durable": "perhaps"}), ("PUT", "/queues/%2F/bad", "{"),
    ("PUT", "/queues/%2F/bad", {"arguments": {"x-max-length": "many"}}),
    ("PUT", "/queues/%2F/bad", {"arguments": {"x-message-ttl": -1}}),
    ("PUT", "/queues/%2F/bad", {"arguments": {"x-overflow": "spill"}}),
    ("PUT", "/queues/%2F/bad", {"arguments": []}),
    ("PUT", "/queues/%2F/amq.mine", {}), ("PUT", "/queues/none/q", {}),
    ("PUT", "/queues/%2F/full", {"durable": True, "arguments": {"x-max-length": 10, "x-dead-letter-exchange": "d"}}),
    ("PUT", "/queues/%2F/q", {"durable": True, "arguments": {"x-max-length": 1}}),
    ("PUT", "/queues/%2F/a%2Fb%20%C3%A4%25%23%3F", {}), ("GET", "/queues/%2F/a%2Fb%20%C3%A4%25%23%3F"),
    ("GET", "/queues/%2F/none"), ("GET", "/queues/none"), ("GET", "/queues/none/q"), ("DELETE", "/queues/%2F/none"),
    ("DELETE", "/queues/%2F/text?if-empty=true"), ("DELETE", "/queues/%2F/none/contents"),
    ("PUT", "/exchanges/%2F/x", {"type": "topic", "durable": True}),
    ("PUT", "/exchanges/%2F/x", {"type": "topic", "durable": True}),
    ("PUT", "/exchanges/%2F/x", {"type": "direct", "durable": True}),
    ("PUT", "/exchanges/%2F/y", {"type": "fanout"}), ("PUT", "/exchanges/%2F/bad", {"type": "odd"}),
    ("PUT", "/exchanges/%2F/amq.mine", {"type": "direct"}), ("PUT", "/exchanges/none/x", {"type": "direct"}),
    ("PUT", "/exchanges/%2F/untyped", {}), ("GET", "/exchanges/%2F/none"), ("DELETE", "/exchanges/%2F/none"),
    ("DELETE", "/exchanges/%2F/amq.direct"), ("GET", "/exchanges/none"),
)

BINDINGS = as_admin(
    ("POST", "/bindings/%2F/e/x/q/q", {"routing_key": "a b/c", "arguments": {}}),
    ("POST", "/bindings/%2F/e/x/q/q", {"routing_key": "a b/c", "arguments": {}}),
    ("POST", "/bindings/%2F/e/x/q/q", {"routing_key": "k", "arguments": {"n": 1, "s": "t"}}),
    ("POST", "/bindings/%2F/e/x/q/q", {}), ("POST", "/bindings/%2F/e/x/q/q", "{"),
    ("POST", "/bindings/%2F/e/x/e/y", {"routing_key": "#"}),
    ("POST", "/bindings/%2F/e/none/q/q", {"routing_key": ""}),
    ("POST", "/bindings/%2F/e/x/q/none", {"routing_key": ""}),
    ("POST", "/bindings/none/e/x/q/q", {"routing_key": ""}),
    ("POST", "/bindings/%2F/e/amq.default/q/q", {"routing_key": ""}),
    ("GET", "/bindings"), ("GET", "/bindings/%2F"), ("GET", "/bindings/none"),
    ("GET", "/bindings/%2F/e/x/q/q"), ("GET", "/bindings/%2F/e/x/e/y"), ("GET", "/bindings/%2F/e/x/q/none"),
    ("GET", "/bindings/%2F/e/none/q/q"), ("GET", "/bindings/%2F/e/x/q/q/a%20b%2Fc"),
    ("GET", "/bindings/%2F/e/x/q/q/none"), ("GET", "/bindings/%2F/e/amq.default/q/q"),
    ("GET", "/queues/%2F/q/bindings"), ("GET", "/queues/%2F/none/bindings"),
    ("GET", "/exchanges/%2F/x/bindings/source"), ("GET", "/exchanges/%2F/y/bindings/destination"),
    ("GET", "/exchanges/%2F/none/bindings/source"),
    ("DELETE", "/bindings/%2F/e/x/q/q/none"), ("DELETE", "/bindings/%2F/e/x/e/y/%23"),
)

MESSAGE = {"routing_key": "q", "properties": {"headers": {"h": 1}, "delivery_mode": 2}, "payload": "text",
           "payload_encoding": "string"}
FETCH = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
MESSAGES = as_admin(
    ("POST", "/exchanges/%2F/amq.default/publish", MESSAGE), ("POST", "/exchanges/%2F/amq.default/publish", MESSAGE),
    ("POST", "/exchanges/%2F/amq.default/publish", {**MESSAGE, "routing_key": "none"}),
    ("POST", "/exchanges/%2F/none/publish", MESSAGE), ("POST", "/exchanges/none/x/publish", MESSAGE),
    ("POST", "/exchanges/%2F/x/publish", {}), ("POST", "/exchanges/%2F/x/publish", {**MESSAGE, "payload": 1}),
    ("POST", "/exchanges/%2F/x/publish", {**MESSAGE, "payload_encoding": "odd"}),
    ("POST", "/exchanges/%2F/x/publish", {**MESSAGE, "payload_encoding": "base64", "payload": "!"}),
    ("POST", "/exchanges/%2F/x/publish", {**MESSAGE, "properties": {"priority": "high"}}),
    ("POST", "/queues/%2F/q/get", FETCH), ("POST", "/queues/%2F/q/get", {**FETCH, "encoding": "base64"}),
    ("POST", "/queues/%2F/q/get", {**FETCH, "truncate": 2}), ("POST", "/queues/%2F/q/get", {**FETCH, "count": "1"}),
    ("POST", "/queues/%2F/q/get", {**FETCH, "ackmode": "odd"}), ("POST", "/queues/%2F/q/get", {"count": 1}),
    ("POST", "/queues/%2F/q/get", {**FETCH, "count": "many"}), ("POST", "/queues/%2F/none/get", FETCH),
    ("POST", "/queues/%2F/q/get", {**FETCH, "ackmode": "ack_requeue_false"}),
    ("POST", "/queues/%2F/q/actions", {"action": "odd"}),
    ("DELETE", "/queues/%2F/q?if-empty=true"),
)

POLICY = {"pattern": "^full", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"}
POLICIES = as_admin(
    ("PUT", "/policies/%2F/p", POLICY), ("PUT", "/policies/%2F/p", POLICY),
    ("PUT", "/policies/%2F/bad", {**POLICY, "definition": {"odd": 1}}),
    ("PUT", "/policies/%2F/bad", {**POLICY, "definition": {"max-length": -1}}),
    ("PUT", "/policies/%2F/bad", {**POLICY, "definition": {}}),
    ("PUT", "/policies/%2F/bad", {**POLICY, "apply-to": "odd"}),
    ("PUT", "/policies/%2F/bad", {**POLICY, "pattern": "("}), ("PUT", "/policies/%2F/bad", {"pattern": "x"}),
    ("PUT", "/policies/%2F/bad", {**POLICY, "priority": "high"}), ("PUT", "/policies/none/p", POLICY),
    ("GET", "/policies"), ("GET", "/policies/%2F"), ("GET", "/policies/%2F/p"), ("GET", "/policies/%2F/none"),
    ("GET", "/policies/none"), ("DELETE", "/policies/%2F/none"),
    ("PUT", "/operator-policies/%2F/o", POLICY),
    ("PUT", "/operator-policies/%2F/bad", {**POLICY, "definition": {"dead-letter-exchange": "x"}}),
    ("GET", "/operator-policies"), ("GET", "/operator-policies/%2F/o"), ("GET", "/operator-policies/%2F/none"),
    ("GET", "/parameters"), ("GET", "/parameters/none"), ("GET", "/parameters/none/%2F"),
    ("GET", "/parameters/none/%2F/n"), ("PUT", "/parameters/none/%2F/n", {"value": 1}),
    ("DELETE", "/parameters/none/%2F/n"),
    ("PUT", "/global-parameters/g", {"value": {"a": 1}}), ("PUT", "/global-parameters/g", {"value": {"a": 1}}),
    ("PUT", "/global-parameters/bad", {}), ("GET", "/global-parameters"), ("GET", "/global-parameters/g"),
    ("GET", "/global-parameters/none"), ("DELETE", "/global-parameters/g"), ("DELETE", "/global-parameters/none"),
)

LISTS = as_admin(
    *(("GET", f"/queues?{query}") for query in (
        "page=1", "page=1&page_size=1&name=q", "page=9", "page=0", "page=x", "page=1&page_size=501",
        "page=1&name=%28&use_regex=true", "columns=name,messages", "columns=none", "sort=name&sort_reverse=true",
        "page=1&columns=name", "lengths_age=60&lengths_incr=0", "lengths_age=x&lengths_incr=5")),
    ("GET", "/exchanges?page=1"), ("GET", "/vhosts?page=1"), ("GET", "/connections?page=1"), ("GET", "/channels?page=1"),
    ("GET", "/whoami"), ("GET", "/extensions"), ("GET", "/feature-flags"), ("GET", "/cluster-name"),
    ("PUT", "/cluster-name", {"name": "named"}), ("PUT", "/cluster-name", {}),
    ("GET", "/definitions"), ("GET", "/definitions/%2F"), ("GET", "/definitions/none"),
    ("POST", "/definitions", "{"), ("POST", "/definitions", {}),
    ("POST", "/definitions", {"queues": [{"name": "new", "vhost": "none", "durable": True}]}),
    ("POST", "/definitions/none", {}), ("GET", "/nodes/none"), ("GET", "/nodes/none/memory"),
    ("GET", "/aliveness-test/%2F"), ("GET", "/aliveness-test/none"), ("GET", "/health/checks/alarms"),
    ("GET", "/health/checks/local-alarms"), ("GET", "/health/checks/port-listener/1"),
    ("GET", "/health/checks/port-listener/x"), ("GET", "/health/checks/protocol-listener/mqtt"),
    ("GET", "/health/checks/protocol-listener/amqp"), ("GET", "/health/checks/virtual-hosts"),
    ("GET", "/health/checks/certificate-expiration/1/days"), ("GET", "/health/checks/certificate-expiration/1/eons"),
    ("GET", "/health/checks/node-is-mirror-sync-critical"), ("GET", "/health/checks/node-is-quorum-critical"),
    ("GET", "/none"), ("PATCH", "/overview"), ("POST", "/overview"), ("OPTIONS", "/queues/%2F/q"), ("HEAD", "/overview"),
    ("POST", "/rebalance/queues"), ("GET", "/connections/none"), ("DELETE", "/connections/none"),
    ("GET", "/channels/none"), ("GET", "/connections/username/none"), ("GET", "/consumers/none"),
)

RIGHTS = [
    (login, method, path, None)
    for login, rows in {
        "": ["GET /overview"],
        "guest:wrong": ["GET /overview"],
        "nobody:p": ["GET /overview", "GET /whoami"],
        "member:p": ["GET /overview", "GET /whoami", "GET /users", "GET /nodes", "GET /queues/%2F", "GET /queues/%2F/q",
                     "GET /vhosts", "GET /vhosts/%2F", "GET /connections", "GET /connections/{c}", "GET /parameters",
                     "GET /policies/%2F", "DELETE /connections/{c}", "GET /definitions", "GET /permissions",
                     "GET /vhost-limits", "GET /health/checks/alarms"],
        "maker:p": ["GET /queues/%2F/q", "GET /parameters", "GET /global-parameters", "GET /users", "GET /nodes",
                    "DELETE /operator-policies/%2F/o", "PUT /vhosts/mine", "GET /operator-policies"],
        "watcher:p": ["GET /nodes", "GET /users", "GET /queues/%2F/q", "PUT /queues/%2F/mine", "PUT /queues/%2F/w",
                      "DELETE /queues/%2F/full", "POST /bindings/%2F/e/x/q/q", "DELETE /connections/{c}",
                      "DELETE /queues/%2F/full/contents", "GET /vhosts"],
    }.items()
    for method, path in (row.split() for row in rows)
] + [
    ("watcher:p", "POST", "/exchanges/%2F/x/publish", MESSAGE), ("watcher:p", "POST", "/queues/%2F/q/get", FETCH),
    ("maker:p", "PUT", "/policies/%2F/made", POLICY), ("member:p", "PUT", "/policies/%2F/made", POLICY),
]

# The queue `read` has a consumer of a connection that is open from before FIRST until the end.
FIRST = as_admin(("PUT", "/queues/%2F/read", {}))

LATE = as_admin(
    ("GET", "/overview"), ("GET", "/nodes"), ("GET", "/nodes/{n}"), ("GET", "/nodes/{n}/memory"), ("GET", "/queues"),
    ("GET", "/queues/%2F"), ("GET", "/queues/%2F/q"), ("GET", "/queues/%2F/read"), ("GET", "/queues/%2F/full"),
    ("GET", "/exchanges"), ("GET", "/exchanges/%2F"), ("GET", "/exchanges/%2F/x"), ("GET", "/exchanges/%2F/amq.default"),
    ("GET", "/connections"), ("GET", "/connections/{c}"), ("GET", "/connections/{c}/channels"),
    ("GET", "/connections/username/guest"), ("GET", "/channels"), ("GET", "/channels/{c} (1)"), ("GET", "/consumers"),
    ("GET", "/consumers/%2F"), ("GET", "/vhosts/%2F"), ("GET", "/vhosts/%2F/connections"),
    ("GET", "/vhosts/%2F/channels"), ("GET", "/queues/%2F/q?lengths_age=60&lengths_incr=5"),
    ("GET", "/overview?columns=message_stats.publish,node"),
)

LAST = as_admin(
    ("DELETE", "/queues/%2F/full"), ("DELETE", "/queues/%2F/q/contents"), ("DELETE", "/exchanges/%2F/y"),
    ("DELETE", "/policies/%2F/p"), ("DELETE", "/operator-policies/%2F/o"), ("DELETE", "/users/member"),
    ("DELETE", "/vhosts/other"), ("DELETE", "/permissions/%2F/maker"), ("DELETE", "/connections/{c}"),
)

PLAIN = USERS + VHOSTS + QUEUES + BINDINGS + MESSAGES + POLICIES + LISTS + RIGHTS
