"""Differences that are meant: (request, line on what differs, why), both as regular expressions.

The request is to fit as a whole, the line somewhere. Of rows that fit the first one counts.

No RabbitMQ 4 was asked: where a row speaks of it, that is from its sources and documentation or is presumed. Rows on
figures are wide: they also hide what RabbitMQ does not show yet, and a key that lepus should have. Those of nodes and
feature flags take every difference there.
"""
ANY = ".*"
QUEUE = r"GET /(queues|users/[^/]*/queues)([/?].*)?"
CONNECTION = r"GET (/vhosts/[^/]*)?/connections([/?].*)?"
NODE = r"GET /nodes(/.*)?"

EXPLAINED = [
    # The whole API.
    (ANY, r"lepus[.:]|\.lepus", "what only lepus has stands under the key `lepus`"),
    (ANY, r"NoneType(\|\w+)? -> ", "a key without a value is left out instead of null"),
    (ANY, r"rabbit@|compare\d+@", "keys that are names of nodes"),
    (ANY, r"garbage_collection\.|reductions|cowboy_opts|ssl_opts|socket_opts|backing_queue_status|slave|queue_version",
     "the insides of Erlang and of RabbitMQ's queues"),
    (ANY, r"storage_version|cluster_tags|node_tags|crypto_lib_version|is_op_policy_updating|default_queue_type|"
          r"protected_from_deletion|statistics_level|is_internal_user|auth_backend|consumer_timeout|"
          r"\.metadata|statistics_db_node|listeners\[\]\.tls|release_series|feature_flags?",
     "RabbitMQ 4 has it"),
    (ANY, r"^reason \['|^code 400 \['", "a reason is a text, never a list; users that are missing are passed over by a bulk delete, else 404"),
    (ANY, r"^reason '\[\{key_missing", "the first of several keys that are missing is named"),
    (ANY, r"^reason 'not_json'|^reason 'failed_to_parse_json'", "the reason says where the JSON is wrong"),
    (ANY, r"[Aa]ccess refused|ACCESS_REFUSED|access to (exchange|queue)", "the reason says which right is missing"),
    (r"(PATCH|POST) /overview|GET /overview", r"^\$(: NoneType|\.error: nothing|\.reason: nothing)",
     "each refusal has a JSON body"),
    (ANY, r"^code 500 ", "RabbitMQ fails"),
    # Rights and missing objects.
    (ANY, r"^code 401 'User not authorised to access virtual host' -> 404",
     "who may not enter a virtual host is not told that it is there"),
    (r"GET /overview", r"^\$\.(churn_rates|message_stats|queue_totals): object -> nothing|"
                      r"^\$\.object_totals\.(channels|connections|consumers): int -> nothing",
     "members are told what there is where they may enter, and nothing of others"),
    (r"GET /vhosts/.*", r"^code 401 .* -> 404", "who may not enter a virtual host is not told that it is there"),
    (r"GET /queues/%2F/none/bindings", r"^\$\[\]: object -> nothing",
     "RabbitMQ makes up the default binding of a queue that is not there"),
    (r"GET /definitions/none", r"^code 400 'vhost_not_found' -> 404", "a virtual host that is not there is 404"),
    (r"POST /exchanges/none/.*|POST /exchanges/%2F/none/publish", r"^code 40[01] .* -> 404",
     "RabbitMQ 4: 404 for what is not there"),
    (r"POST /queues/%2F/none/get", r"^reason ", "RabbitMQ 4: queue_not_found"),
    (r"PUT /user-limits/none/.*", r"^code 400", "the user is missing: 404"),
    (r"GET /auth/hash_password/.*", r"^code 404", "RabbitMQ 3.11 and later have it"),
    (r"GET /overview", r"WWW-Authenticate|Login failed", "browsers are not to ask again when a password was wrong"),
    # Bodies and queries.
    (r"PUT /queues/.*", r"expected integer, got longstr", "the text that AMQP clients get"),
    (r"DELETE /queues/.*if-empty.*", r"not empty", "a refusal of a channel comes with its code"),
    (r"PUT /vhost-limits/.*", r"^reason 'Validation failed\\n\\nmax-queues should be a number",
     "a limit is read as a number before it is validated"),
    (r"PUT /(operator-)?policies/.*", r"^reason .Validation failed", "the same refusal in other words after the first line"),
    (r"GET /queues\?page=x", r"^(error|reason)", "one word for all parameters of pages that are wrong"),
    (r"GET /queues\?.*use_regex.*", r"^code 400", "a broken pattern fits no name"),
    (r"GET /queues\?lengths_age=x.*", r"^code 200 '' -> 400", "ages that are no numbers are refused"),
    (r"GET /queues\?columns=none", r"list -> object", "no column is {}, not []"),
    (r"GET /overview\?columns=.*", r"message_stats", "columns of columns are picked, too"),
    (r"POST /definitions", r"not everything could be applied", "the reason says which items are wrong"),
    (r"GET /health/checks/protocol-listener/.*", r"protocols?:", "RabbitMQ 4: several protocols at once"),
    (r"POST /bindings/.*", r"^header Location \S*~", "what stands for arguments is another hash"),
    (r"GET /(bindings|queues)/.*", r"properties_key", "what stands for arguments is another hash"),
    # Figures.
    (QUEUE, r"_ram|persistent|paged_out|idle_since|head_message_timestamp|garbage_collection|recoverable",
     "not counted of a queue"),
    (QUEUE, r"message_stats\.(confirm|disk_)[a-z_]*(\.rate)?: (int|object)", "not counted of a queue"),
    (QUEUE, r"consumer_(capacity|utilisation)", "always with a fraction"),
    (QUEUE, r"message_stats[.a-z_]*: nothing|samples|avg", "all counters of a queue are there from the start"),
    (QUEUE, r": nothing -> ", "RabbitMQ has a queue's figures only after some seconds"),
    (QUEUE, r"consumer_details\[\]\.|deliveries|incoming|list -> list", "details of who uses a queue"),
    (r"GET /vhosts([/?].*)?", r": nothing -> ", "a virtual host's figures are there from the start"),
    (r"GET /exchanges([/?].*)?", r": nothing -> ", "RabbitMQ has an exchange's figures only after some seconds"),
    (CONNECTION, r"(recv|send)_[a-z_.]*: nothing -> ", "RabbitMQ has a connection's octets only after some seconds"),
    (CONNECTION, r"send_pend|ssl_|peer_cert", "of TLS only where there is some"),
    (r"GET /connections/username/.*", r": nothing -> ", "RabbitMQ 4 shows connections of a user in full"),
    (r"GET (.*/)?(channels|connections/.*/channels)([/?].*)?", r"consumer_details\[\]\.|idle_since|: nothing -> ",
     "all counters of a channel are there from the start"),
    (r"GET (/vhosts/[^/]*)?/consumers.*", r"priority", "a consumer's priority"),
    (r"GET /overview", r": nothing -> ", "all counters are there from the start; RabbitMQ shows them after the first use"),
    (r"GET /overview", r"contexts|listeners|message_stats|queue_totals", "as RabbitMQ 4"),
    (NODE, r"", "the insides of a node: what lepus has not is left out"),
    (r"GET /definitions(/.*)?", r"^\$\.?.*(: nothing -> |parameters|vhost: str -> nothing|limits)",
     "the format of RabbitMQ 4, limits with their virtual hosts and users"),
    (r"GET /parameters", r"value", "limits are no parameters"),
    (r"GET /feature-flags", r"", "RabbitMQ 4's flags"),
    (r"GET /whoami", r"nothing ->", "RabbitMQ 4 has it"),
]
