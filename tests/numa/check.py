#!/usr/bin/env python3
"""Compares what the broker planned and says with what the guest's kernel said.

usage: check.py MACHINE FACTS cpus|nodes

The last word says whether each shard has a CPU for itself, or a node's CPUs with others.
"""

import json
import re
import sys

SHARE_MIN = 0.95
# A heap of a few hundred KiB may hold a buffer of a connection that came from another node.
FOREIGN_BYTES_MAX = 128 << 10
GROWTH_BYTES_MIN = 8 << 20


def read_facts(path):
    facts = {}
    name = None
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("@@ "):
                name = line[3:].strip()
                facts[name] = ""
            elif name is not None:
                facts[name] += line
    return facts


def ids(text):
    found = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


def threads(text):
    """Threads as (name, allowed, migrations, last CPU)."""
    pattern = re.compile(r"^(.*) allowed=(\S*) migrations=(\d*) last=(\d*)$", re.MULTILINE)
    return [
        (name, ids(allowed), int(migrations or -1), int(last or -1))
        for name, allowed, migrations, last in pattern.findall(text)
    ]


def anonymous(text):
    """Bytes of the broker's own memory by node."""
    total = {}
    for line in text.splitlines():
        if " anon=" not in line:
            continue
        size = int((re.search(r"kernelpagesize_kB=(\d+)", line) or [0, 4])[1]) * 1024
        for node, pages in re.findall(r" N(\d+)=(\d+)", line):
            total[int(node)] = total.get(int(node), 0) + int(pages) * size
    return total


def by_shard(text, name):
    pattern = re.compile(r"^%s\{shard=\"(\d+)\"\} (\S+)$" % name, re.MULTILINE)
    return {int(shard): float(value) for shard, value in pattern.findall(text)}


class Check:
    def __init__(self):
        self.failures = 0

    def that(self, holds, text):
        print(f"    {'ok  ' if holds else 'FAIL'} {text}")
        self.failures += not holds


def machine_agrees(check, facts, machine):
    for node in machine["nodes"]:
        number = node["node"]
        kernel = lambda key: facts.get(f"kernel node{number} {key}", "")
        total = re.search(r"MemTotal:\s+(\d+) kB", kernel("meminfo"))
        same = (
            set(node["cpus"]) == ids(kernel("cpulist"))
            and node["distances"] == [int(word) for word in kernel("distance").split()]
            and total is not None
            and node["memory_bytes"] == int(total[1]) * 1024
        )
        check.that(same, f"node {number}: CPUs, memory and distances are the kernel's")
    nodes = [name for name in facts if re.fullmatch(r"kernel node\d+ cpulist", name)]
    check.that(len(nodes) == len(machine["nodes"]), f"{len(nodes)} nodes")
    cards = {name.split()[-1]: int(text) for name, text in facts.items() if " card " in name}
    for device in machine["devices"]:
        if device["kind"] == "network":
            node = -1 if device["node"] is None else device["node"]
            check.that(
                cards.pop(device["address"], None) == node,
                f"card {device['name'] or device['address']} is on node {node}",
            )
    check.that(not cards, "every card is told")


def threads_agree(check, facts, plan):
    before, after = threads(facts["threads start"]), threads(facts["threads end"])
    shards = {name: rest for name, *rest in after}
    first = {name: rest for name, *rest in before}
    placed = moved = 0
    for place in plan["places"]:
        name = f"shard-{place['shard']}"
        allowed, migrations, last = shards.get(name, (set(), -1, -1))
        planned = set(place["cpus"])
        placed += allowed == planned and last in planned
        # The kernel chooses among the CPUs of a node.
        moved += len(planned) == 1 and (migrations < 0 or migrations != first[name][1])
    count = len(plan["places"])
    alone = sum(len(place["cpus"]) == 1 for place in plan["places"])
    check.that(placed == count > 0, f"{placed} of {count} shards run where they were placed, {alone} on a CPU each")
    check.that(moved == 0, f"{moved} shards were moved to another CPU under load")
    served = wrong = 0
    for name, allowed, _, _ in after:
        found = re.fullmatch(r"shard-(\d+)-.*", name)
        if found:
            served += 1
            wrong += allowed != set(plan["places"][int(found[1])]["file_cpus"])
    check.that(served > 0 and wrong == 0, f"{served - wrong} of {served} file threads are near their shard")
    acceptor = shards.get("acceptor", (set(),))[0]
    check.that(acceptor == set(plan["listeners"]["cpus"]), "the acceptor is where listeners are planned")
    for name in ("control", "notices", "metrics"):
        if name in shards:
            check.that(
                shards[name][0] == set(plan["housekeeping"]["cpus"]),
                f"thread {name} is where housekeeping is planned",
            )


def memory_agrees(check, facts, plan, running):
    places = {place["shard"]: place for place in plan["places"]}
    before = "start"
    nodes = set()
    for run in (f"backlog-{number}" for number in range(1, 7)):
        received = by_shard(facts[f"metrics {run}"], "lepus_shard_received_bytes_total")
        earlier = by_shard(facts[f"metrics {before}"], "lepus_shard_received_bytes_total")
        shard = max(received, key=lambda one: received[one] - earlier[one])
        old, new = anonymous(facts[f"maps {before}"]), anonymous(facts[f"maps {run}"])
        growth = {node: max(0, new[node] - old.get(node, 0)) for node in new}
        total = sum(growth.values())
        node = places[shard]["memory_node"]
        share = growth.get(node, 0) / total if total else 0
        nodes.add(node)
        check.that(
            total >= GROWTH_BYTES_MIN and share >= SHARE_MIN,
            f"{run}: shard {shard} grew by {total / (1 << 20):.1f} MiB, {100 * share:.2f} % of it on node {node}",
        )
        before = run
    several = len({place["memory_node"] for place in plan["places"]}) > 1
    check.that(several == (len(nodes) > 1), f"shards on nodes {sorted(nodes)} were loaded")
    wrong = 0
    for number, shard in enumerate(running["shards"]):
        memory = {int(node): size for node, size in shard["memory_bytes_by_node"].items()}
        total = sum(memory.values())
        node = places[number]["memory_node"]
        own = memory.get(node, 0)
        wrong += total == 0 or (own < SHARE_MIN * total and total - own > FOREIGN_BYTES_MAX)
        wrong += shard["memory_policy"] != f"prefer:{node}"
    count = len(running["shards"])
    check.that(wrong == 0, f"heap, stack and policy of {count} shards are on their nodes")


def main():
    name, path, kind = sys.argv[1:]
    check = Check()
    try:
        facts = read_facts(path)
    except OSError as error:
        facts = {}
        print(f"    {error}")
    check.that("end" in facts, "the guest came to its end")
    if "end" not in facts:
        print("    told so far: " + ", ".join(facts))
        print("    " + facts.get("failed", ""))
        return 1
    loads = [fact for fact in facts if fact.startswith("load ")]
    check.that(all(facts[load].strip() == "0" for load in loads), f"{len(loads)} loads ended well")
    report = json.loads(facts["topology"])
    machine_agrees(check, facts, report["machine"])
    alone = {len(place["cpus"]) == 1 for place in report["plan"]["places"]}
    check.that(alone == {kind == "cpus"}, f"shards are bound to {kind}")
    threads_agree(check, facts, report["plan"])
    memory_agrees(check, facts, report["plan"], report["running"])
    check.that(report["running"]["warnings"] == [], f"no warnings: {report['running']['warnings']}")
    misplaced = by_shard(facts["metrics end"], "lepus_shard_misplaced")
    check.that(len(misplaced) > 0 and not any(misplaced.values()), "the metrics say so, too")
    check.that(facts["exit"].strip() == "0", "the broker stopped in order")
    print(f"    {name}: {'passed' if check.failures == 0 else f'{check.failures} FAILED'}")
    return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
