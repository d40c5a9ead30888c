#!/usr/bin/env python3
"""Writes the well-formed inputs of the format fuzzers' corpora.

It packs the layouts of docs/formats.md with `struct` alone: a second opinion on the C++ writers.
Usage: tests/fuzz/make_corpus.py (writes tests/fuzz/corpus/fuzz_*/seed-*)
"""

import json
import re
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"


def pad(data: bytes, alignment: int) -> bytes:
    return data + bytes(-len(data) % alignment)


def mfp(
    source: int, first_event: int, fragments: list[bytes], *, types: bytes = b"", align: int = 2, wide: bool = False
) -> bytes:
    types = types or bytes(1 + k for k in range(len(fragments)))
    sizes = struct.pack(f"<{len(fragments)}{'I' if wide else 'H'}", *map(len, fragments))
    tail = pad(types, 4) + pad(sizes, 4) + b"".join(pad(fragment, 1 << align) for fragment in fragments)
    if wide:
        return (
            struct.pack(
                "<HHBBBBQQHHI", 0x57CE, len(fragments), 1, align, 0, 0, first_event, 32 + len(tail), source, 0, 0
            )
            + tail
        )
    return struct.pack("<HHIQHBB", 0x40CE, len(fragments), 20 + len(tail), first_event, source, align, 0) + tail


def phantom(source: int, first_event: int, n: int, flag: int) -> bytes:
    return mfp(source, first_event, [b""] * n, types=bytes([0xF0 | flag]) * n, align=3)


def mep(mfps: dict[int, bytes]) -> bytes:
    n = len(mfps)
    ids = pad(struct.pack(f"<{n}H", *mfps), 4)
    offset = -(-(8 + len(ids) + 4 * n) // 8) * 8
    offsets, body = [], b""
    for packet in mfps.values():
        offsets.append((offset + len(body)) // 4)
        body += pad(packet, 8)
    tables = ids + struct.pack(f"<{n}I", *offsets)
    return struct.pack("<HHI", 0xCEFA, n, (offset + len(body)) // 4) + pad(tables, 8) + body


def bank(kind: int, body: bytes) -> bytes:
    return pad(struct.pack("<HHBBh", 0xCBCB, 8 + len(body), kind, 1, 5) + body, 4)


def mef(first_event: int, events: list[bytes]) -> bytes:
    body = b"".join(
        struct.pack("<HH", (first_event + k) & 0xFFFF, len(banks)) + banks for k, banks in enumerate(events)
    )
    return struct.pack("<IHHI", first_event, len(events), 12 + len(body), 1) + body


def boards(kind: int, packing: int, *datagrams: bytes) -> bytes:
    """Of fuzz_ingest.cpp: format (0: MFP, 1: MEF) and events in a MEP, then datagrams behind their lengths."""
    return bytes([kind | (packing - 1) << 1]) + b"".join(
        struct.pack("<H", len(datagram)) + datagram for datagram in datagrams
    )


def captured(payload: bytes, header: bytes = b"", piece: int = 0) -> bytes:
    """Of fuzz_frames.cpp: an IPv4 packet with a UDP datagram behind a link's header; `piece` as IPv4's field has it."""
    udp = payload if piece & 0x1FFF else struct.pack("!HHHH", 7, 9, 8 + len(payload), 0) + payload
    ip = struct.pack("!BBHHHBBHII", 0x45, 0, 20 + len(udp), 1, piece, 64, 17, 0, 0x0A000001, 0x0A000002)
    return struct.pack("<H", len(header + ip + udp)) + header + ip + udp


def program(packing: int, *packets: bytes) -> bytes:
    """Of fuzz_program.cpp: events in a MEP, then records of the ring of 64 lines, one after the other."""
    made = bytes([packing - 1])
    at = 0
    for packet in packets:
        data = (struct.pack("<QI", len(packet), 64).ljust(64, b"\0") + packet)[:255]
        lines = (64 + len(packet) + 63) // 64
        if at + lines > 64:
            made += struct.pack("<BHBb", 0, at * 64, 16, 64 - at) + bytes(16)
            at = 0
        made += struct.pack("<BHBb", 0, at * 64, len(data), lines) + data
        at = (at + lines) % 64
    return made


def record(what: int, peer: int, kind: int, payload: bytes, entries: int = 0) -> bytes:
    """One record of fuzz_control.cpp: `what` 4 is a message; its length field also chooses the kind."""
    length = len(payload)
    while length % 2048 < len(payload) or 1 + length % 25 != kind:
        length += 1
    return struct.pack("<BBH", what + entries, peer, length) + payload.ljust(length % 2048, b"\0")[: length % 2048]


def control_story(scheme: int) -> bytes:
    """A node comes up, hears of the view, gets an assignment, a notice and a verdict."""
    up = struct.pack("<BBH", 1, 0, 0) + struct.pack("<BBH", 1, 1, 0) + struct.pack("<BBH", 1, 2, 0)
    view = struct.pack("<IIIIQQ", 1, 1, 6, 1, 0, 0)
    assign = struct.pack("<QIHHHHI", 0, 1, 1, 0, 1, 0, 0)
    announce = struct.pack("<QQII", 0, 0, 1, 0) + struct.pack("<HHI", 1, 0, 1)
    return (
        bytes([scheme])
        + up
        + record(4, 0, 5, view, 1)
        + record(4, 0, 11, assign, 1)
        + record(4, 0, 7, announce, 1)
        + struct.pack("<BBH", 0, 0, 0)
        + record(4, 0, 13, assign, 1)
    )


def key_story(scheme: int, kind: int, size: int, *, parts: int) -> bytes:
    """A node comes up and is told the key of a region: kind 16 by a builder unit, kind 20 by a readout unit."""
    up = struct.pack("<BBH", 1, 0, 0) + struct.pack("<BBH", 1, 1, 0) + struct.pack("<BBH", 1, 2, 0)
    slot_bytes, slots = 384, 5
    body = struct.pack("<QIHH", slot_bytes, slots, 0, size) if kind == 16 else struct.pack("<HHI", 0, 0, size)
    return bytes([scheme]) + up + record(4, 0, kind, body + bytes(range(96)) * parts, parts)


def net_story(measure: int, *, wrong: int = 0, key: bytes = b"keys") -> bytes:
    """Two peers of raw traffic come up and say hello; messages arrive, credits, an answer, and the ends."""

    def event(what: int, peer: int, value: int = 0, payload: bytes = b"") -> bytes:
        return struct.pack("<BBH", what, peer, len(payload) or value) + payload

    up = event(1, 1) + event(1, 2) + event(5, 1, 4, key) + event(5, 2, 4, key)
    begun = event(0x30, 1, 0)  # 3 ms later: sending has begun
    counts = struct.pack("<QQ", 1 + wrong, 1)
    slots = 1 if measure & 1 else 3
    traffic = event(0, 1, slots) + event(6, 1, 16, counts) + event(0, 1, 0x8000) + event(0, 1, 0x8001) + event(3, 1)
    return bytes([measure]) + up + begun + traffic + event(4, 0) + event(7, 1, 16, counts) + event(7, 2, 16, bytes(16))


def frame(
    kind: int,
    sequence: int,
    payload: bytes = b"",
    *,
    notice: int = 0,
    length: int | None = None,
    tag: int = 0,
    offset: int = 0,
) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack("<BBHIIIHHIQ", kind, 0, notice, size, sequence, 3, 0, 0, tag, offset) + payload


def delivery(stream: int, data: bytes) -> bytes:
    return struct.pack("<BH", stream, len(data)) + data


def framed_seeds() -> dict[str, bytes]:
    message, write, notice, request, reply, refused = range(1, 7)
    read = b"\x80"
    everything = (
        frame(message, 0, b"hello")
        + frame(write, 1, bytes(100), offset=64)
        + frame(notice, 2, bytes(3000), notice=7, offset=5192)
        + frame(request, 3, length=200, tag=5)
        + frame(request, 4, length=9000)
        + frame(message, 5, bytes(4000))
    )
    one_stream, three_streams, room = 0, 2, 8 * 4
    beside = 160  # four events
    body = bytes(range(100))

    def piece(data: bytes) -> bytes:
        return b"\x60" + struct.pack("<H", len(data)) + data

    return {
        "bodies-beside": bytes([beside])
        + piece(frame(7, 0, body, offset=16))
        + delivery(0, frame(notice, 0, bytes(16), notice=5, tag=100))
        + b"\x40"
        + piece(frame(7, 0, body, offset=300))  # late
        + piece(b"")
        + delivery(0, frame(notice, 1, bytes(16), notice=6, tag=100))  # damaged
        + piece(frame(7, 2, body, offset=8150)),  # past the end
        "one-stream": bytes([one_stream + room]) + delivery(0, everything) + b"\xff",
        "small-pieces": bytes([one_stream + room])
        + b"".join(delivery(0, everything[at : at + 77]) for at in range(0, len(everything), 77)),
        "little-room": bytes([one_stream + 4]) + delivery(0, everything) + b"\x40" * 9,
        "out-of-order": bytes([three_streams + room])
        + delivery(2, frame(message, 3, b"last") + frame(notice, 5, b"x", notice=2))
        + delivery(1, frame(notice, 1, bytes(300), notice=1) + frame(write, 4, bytes(20)))
        + delivery(0, frame(message, 0, b"first") + frame(write, 2, bytes(20), offset=8172)),
        "replies": bytes([one_stream + room])
        + read * 3
        + delivery(0, frame(reply, 0, bytes(512), tag=1) + frame(refused, 1, tag=0)),
        "past-the-end": bytes([one_stream + room]) + delivery(0, frame(write, 0, bytes(8), offset=8185)),
    }


def consumer_seeds() -> dict[str, bytes]:
    """fuzz_consumer.cpp: the window, then operations of 3 bytes: kind, cell, value."""

    def story(window: int, *operations: tuple[int, int, int]) -> bytes:
        return bytes([window - 1]) + b"".join(struct.pack("<BBB", *operation) for operation in operations)

    deliver, give_back, collect, count = 0, 1, 2, 3
    word, wait, end = 4, 5, 6
    return {
        "in-order": story(2, *[(deliver, 0, 0), (give_back, 0, 0), (collect, 0, 0)] * 5),
        "out-of-order": story(3, *[(deliver, 0, 0)] * 3, (give_back, 2, 0), (collect, 0, 0), (deliver, 0, 0)),
        "counts-too-much": story(2, (deliver, 0, 0), (count, 0, 9), (collect, 0, 0)),
        "wrong-word": story(2, (deliver, 0, 0), (word, 0, 7), (count, 0, 1), (collect, 0, 0)),
        "dies": story(4, *[(deliver, 0, 0)] * 4, (wait, 0, 1), (give_back, 1, 0), (end, 0, 0), (deliver, 0, 0)),
    }


def rendezvous_frame(message: object) -> bytes:
    """src/runtime/launch/rendezvous.h: u32 length, JSON."""
    text = json.dumps(message).encode()
    return struct.pack("<I", len(text)) + text


def rendezvous_sample() -> dict[str, object]:
    """One node's sample with all of its totals, whose names are taken from their list."""
    listed = (ROOT / "src" / "runtime" / "record" / "metrics.cpp").read_text()
    totals = re.findall(r"INCAST_TOTAL\((\w+),", listed)
    sample: dict[str, object] = {"node": 1, "incarnation": 1, "state": "running", "mark": "last"}
    sample |= dict.fromkeys(("at_ps", "joined_at_ps", "cpu_wall_ns", "rss_bytes", "peak_rss_bytes"), 5)
    return sample | {"totals": dict.fromkeys(totals, 7), "latency_ns": {"max": 9, "buckets": [[3, 4], [9, 1]]}}


def reliable_seeds() -> dict[str, bytes]:
    """fuzz_reliable.cpp: one byte a step: which end (bit 0), what (bits 1..3), lost on its way (bit 7)."""
    send, add, later, again, change, make_up, refuse = (kind << 1 for kind in (0, 2, 3, 4, 5, 6, 7))
    lost = 0x80
    both_call = bytes([send, send | 1, send, send | 1])
    header = struct.pack("<HBBIQQIBBH", 0x5244, 2, 3, 0, 5, 0, 0, 1, 0, 0)
    return {
        "in-order": both_call + bytes([add, send, send | 1] * 10),
        "lost": both_call + bytes([add, send | lost, add, send, send | 1, later, send, send | 1] * 5),
        "replayed": both_call + bytes([add, send, again, again, add | 1, send | 1, again]),
        "changed": both_call + bytes([add, send, change, 16, 200, change, 24, 7, change, 8, 1]),
        "made-up": both_call + bytes([make_up]) + header,
        "refused": bytes([send, refuse]),
    }


def channel_seeds() -> dict[str, bytes]:
    """fuzz_channel.cpp: shape and ways, then steps of a byte, with numbers (below 128 a byte) behind them."""
    forge, ring, tell, cell, credit_rung, credit_told, write, post = range(1, 9)
    read, want, wish, rest = range(10, 14)
    high = {step: next(byte for byte in range(128, 256) if byte % 14 == step) for step in range(14)}
    memory, doorbell, message = (3 | way << 2 | way << 4 for way in (0, 1, 2))
    fill = bytes([write, 100, rest, post, post])
    return {
        "doorbell": bytes([doorbell, forge, 1, 40, ring, read, forge, 2, 9, ring, read, rest]) + fill,
        "memory": bytes([memory, forge, 1, 40, read, forge, 2, 9, read, rest]) + fill + bytes([cell, 2, rest]),
        "message": bytes([message, tell, 2, forge, 1, 40, read, forge, 2, 9, read, *fill, credit_told, 2]),
        "credits": bytes([doorbell, *fill * 4, wish, cell, 2, credit_rung, *fill, cell, 9, credit_rung, *fill]),
        "wishes": bytes([doorbell, forge, 1, 40, ring, read, want, 0, rest, want, 1, rest, want, 9, rest]),
        "messages": bytes([doorbell, 0, 16, 5, 0, 20, 1, forge, 1, 10, ring, high[read]]),
        "end": bytes([doorbell, high[forge], 1, 0, ring, read]),
        "lies": bytes([doorbell, forge, 1, 255, 20, ring, read, tell, 255, 56, credit_told, 128, 3]),
    }


def hub_seeds() -> dict[str, bytes]:
    """fuzz_hub.cpp: 0 and a message of a hub, 1 and a card or a greeting, 2 and an address."""

    def message(what: int, key: bytes = b"", *, fault: int = 0, number: int = 0) -> bytes:
        ways = (0, 1, 1)  # bytes, doorbells
        shape = (16, 16384, 4)
        head = struct.pack("<IBBBBBBHHHIIIIQ", 0x324E4843, what, fault, *ways, 0, 1, 2, len(key), 7, *shape, number)
        return b"\0" + head + key

    def card(what: int, address: bytes) -> bytes:
        return b"\1" + struct.pack("<IBBHII16s", 0x32434843, what, 0, len(address), 1, 7, b"0123456789abcdef") + address

    addresses = ["shm://daq", "tcp://[::1]:1", "udp://*:*", "verbs://10.0.0.1:0", "rio://5:100", "rio://:1"]
    return {
        "open": message(0, b"key"),
        "opened": message(1, b"key"),
        "refused": message(2, fault=3),
        "wrote": message(4, number=9),
        "wants": message(6, number=9),
        "offer": card(1, b"address"),
        "again": card(4, b""),
        "greeting": b"\1" + struct.pack("<Q16s", 0x31474843, b"0123456789abcdef"),
    } | {f"address-{number}": b"\2" + text.encode() for number, text in enumerate(addresses)}


def softrio_udp_seeds() -> dict[str, bytes]:
    """fuzz_softrio_udp.cpp: steps of a script, which begin with what to do."""
    packet_step, exchange, ask, message_step, wait = 2, 8, 5, 7, 4
    edge = 16 + 4096  # of the window, as the script counts

    def packet(operation: int, at: int = 16, size: int = 255, ids: tuple[int, int] = (1, 1), info: int = 0) -> bytes:
        head = bytes([packet_step, operation, 1, *ids, 9, 0, 1])
        return head + struct.pack(">HHHBB", at, size, info, 0, 0)

    nread, nwrite, nwrite_r, swrite, read_register, write_register = range(6)
    doorbell, message, response, data_response = 8, 9, 10, 11
    done = bytes([exchange])
    request = b"".join((struct.pack(">II", 2, 1), bytes([0, 0, 0x55, 0]), struct.pack(">HHHH", 70, 300, 20, 1)))
    return {
        "writes": b"".join(packet(kind) for kind in (nwrite, nwrite_r, swrite)) + done,
        "reads": packet(nread) + packet(nread, size=3) + done,
        "edges": b"".join(packet(nwrite_r, at) for at in (0, 8, 15, edge - 255, edge - 8, edge - 1, edge)) + done,
        "forged-source": packet(nwrite_r, ids=(1, 0)) + bytes([3]) + done,
        "misrouted": packet(doorbell, ids=(0, 1)) + bytes([7]) + done,
        "registers": packet(read_register) + packet(write_register) + done,
        "doorbells": packet(doorbell, info=1) + packet(doorbell, info=3) + done,
        "answers": bytes([ask, 16, 8]) + packet(response) + packet(data_response) + done,
        "message": packet(message) + done,
        "request": bytes([message_step]) + request.ljust(32, b"\0") + done + done,
        "replay": packet(nwrite_r) + done + bytes([3, 0, 1, 3, 2, 9, 5, 1, 3, 1, 8, 0, 1]) + done,
        "anything": bytes([0, 1, 40]) + bytes(40) + bytes([1, 6]) + b"\x00\x04abcd" + bytes([1]) + done,
        "silence": bytes([wait, 0xFF, 0xFF]) * 9 + done,
    }


def verbs_seeds() -> dict[str, bytes]:
    """fuzz_verbs.cpp: calls and answers, as transport/verbs/wire.h has them."""
    end = bytes(15) + b"\1" + struct.pack("<IIHBBBBBBII", 77, 9, 0, 3, 2, 2, 16, 16, 0, 7, 1)

    def call(token: int) -> bytes:
        return struct.pack("<IIQQIIII", 0x48425256, 1, 3, token, 0, 1, 1, 1) + end

    def answer(verdict: int) -> bytes:
        return struct.pack("<II", 0x4E425256, verdict) + end

    calls = {"call": call(5), "wrong_token": call(6), "short_call": call(5)[:50]}
    return {**calls, "answer": answer(0), "refusal": answer(4)}


def netdev_seeds() -> dict[str, bytes]:
    """fuzz_netdev.cpp: 0 and a greeting, 1 and a frame behind its offload header, 2 and a frame that is marked."""
    ethernet = bytes.fromhex("c20000000102c20000000007")
    ipv4 = bytes.fromhex("4502003c000040004006000000000000ffffffff")
    ipv6 = bytes.fromhex("60200000000006400000000000000000") + bytes(24)
    plain, segments = bytes(12), struct.pack("<BBHHHHH", 1, 0x81, 54, 1448, 34, 16, 0)
    return {
        "greeting": b"\0" + struct.pack("<IHHHHI", 0x54454E49, 1, 7, 3, 4, 9000),
        "frame": b"\1" + plain + ethernet + b"\x08\x00" + ipv4,
        "segments": b"\1" + segments + ethernet + b"\x08\x00" + ipv4 + bytes(40),
        "mark-ipv4": b"\2" + ethernet + b"\x08\x00" + ipv4,
        "mark-ipv6": b"\2" + ethernet + b"\x86\xdd" + ipv6,
        "mark-vlan": b"\2" + ethernet + b"\x88\xa8\x00\x05\x81\x00\x00\x06\x08\x00" + ipv4,
    }


def seeds() -> dict[str, dict[str, bytes]]:
    """Of each fuzzer, the inputs by their labels."""
    return {
        "fuzz_channel": channel_seeds(),
        "fuzz_hub": hub_seeds(),
        "fuzz_netdev": netdev_seeds(),
        "fuzz_reliable": reliable_seeds(),
        "fuzz_softrio_udp": softrio_udp_seeds(),
        "fuzz_verbs": verbs_seeds(),
        "fuzz_framed": framed_seeds(),
        "fuzz_consumer": consumer_seeds(),
        "fuzz_control": {f"story-{scheme}": control_story(scheme) for scheme in (*range(32), 32, 33, 64, 65)}
        | {
            f"key-{kind}-{size}-{parts}": key_story(scheme, kind, size, parts=parts)
            for scheme, kind in ((2, 16), (66, 20))
            for size, parts in ((28, 1), (215, 3), (1024, 11), (1025, 11), (97, 1), (65535, 1))
        },
        "fuzz_net": {
            "bandwidth": net_story(2),
            "latency": net_story(3),
            "to-an-end": net_story(6),
            "receiver": net_story(0),
            "more-than-sent": net_story(2, wrong=1 << 40),
            "longest-key": net_story(2, key=bytes(1024)),
            "too-long-key": net_story(2, key=bytes(1026)),
            "loss": net_story(2)[:40] + struct.pack("<BBH", 2, 1, 0) + struct.pack("<BBH", 0xF0, 2, 0) * 25,
        },
        "fuzz_rendezvous": {
            "hello": rendezvous_frame({"type": "hello", "token": "x", "node": 1, "n": 7}),
            "versions": rendezvous_frame({"protocol": 5, "oldest_protocol": 4, "control": [1, 2], "version": "0.1"}),
            "other-versions": rendezvous_frame({"protocol": 4, "oldest_protocol": 5, "control": [3, 2]}),
            "decision": rendezvous_frame({"type": "peers", "control": 2, "peers": []}),
            "address": rendezvous_frame({"type": "address", "incarnation": 1, "address": "00ff7f"}),
            "longest-address": rendezvous_frame({"type": "address", "incarnation": 1, "address": "7f" * 16384}),
            "sample": rendezvous_frame({"type": "sample", "sample": rendezvous_sample()}),
            "two": rendezvous_frame({"type": "rejoin"}) + rendezvous_frame({"type": "failed", "text": "x"}),
        },
        "fuzz_mfp": {
            "narrow": mfp(3, 100, [b"abc", b"", b"defghij"]),
            "unaligned": mfp(3, 100, [b"abc", b"d"], align=0),
            "page-aligned": mfp(3, 100, [b"abc"], align=12),
            "wide": mfp(4, 1 << 40, [b"abc", b"", b"defghij"], align=3, wide=True),
            "phantom": phantom(5, 100, 6, 2),
            "truncated": mfp(6, 100, [b"whole", b"", b""], types=bytes([1, 0xF5, 0xF5])),
            "empty": mfp(7, 100, [b""] * 3),
            "error-banks": mfp(8, 100, [b"", b"why", b""] * 4, types=bytes([*range(89, 97), 100, 101, 8, 0])),
            "end-of-run": struct.pack("<HHIQHBB", 0x40CE, 2, 28, 2**64 - 1, 9, 3, 0) + bytes(8),
            "wide-missing": mfp(4, 100, [b"abc", b""], types=b"\x01\xf5", align=3, wide=True),
        },
        "fuzz_mep": {
            "one": mep({3: mfp(3, 9, [b"abc"])}),
            "three": mep(
                {3: mfp(3, 9, [b"abc", b"d"]), 5: mfp(5, 9, [b"", b"defg"], align=0), 260: mfp(260, 9, [b"x", b""])}
            ),
            "wide-inside": mep({3: mfp(3, 9, [b"abc"]), 4: mfp(4, 9, [b"wide"], wide=True)}),
            "missing": mep({3: mfp(3, 9, [b"abc", b"d"]), 4: phantom(4, 9, 2, 4)}),
            "error-banks": mep(
                {3: mfp(3, 9, [b"", b"d"], types=b"\x5c\x08"), 4: mfp(4, 9, [b""] * 2, types=b"\x60\x60")}
            ),
        },
        "fuzz_mef": {
            "two-events": mef(0x1FFFF, [bank(7, b"hello"), b""]),
            "two-banks": mef(5, [bank(7, b"hello") + bank(8, b""), bank(9, b"12345678")]),
            "no-events": mef(5, []),
        },
        "fuzz_frames": {
            "ethernet": bytes([1])
            + captured(b"hello", bytes(12) + b"\x08\x00")
            + captured(b"", bytes(12) + b"\x08\x00"),
            "vlan": bytes([1]) + captured(b"hello", bytes(12) + b"\x81\x00\x00\x05\x08\x00"),
            "pieces": bytes([3])
            + captured(bytes(8), piece=0x2000)
            + captured(b"abcdefgh", piece=0x2002)
            + captured(b"end", piece=3),
            "cooked": bytes([4]) + captured(b"hello", bytes(14) + b"\x08\x00"),
        },
        "fuzz_ingest": {
            "in-order": boards(0, 2, *(mfp(5, 2 * k, [b"ab", b"c"]) for k in range(6))),
            "twice-and-late": boards(0, 2, *(mfp(5, first, [b"ab", b"c"]) for first in (0, 0, 4, 2, 12, 2))),
            "other-sizes": boards(0, 4, mfp(5, 0, [b"a"] * 3), mfp(5, 3, [b"b"] * 6), mfp(5, 10, [b"", b"c"])),
            "restart": boards(0, 1, *(mfp(5, k % 9, [b"abc"]) for k in range(18))),
            "jump": boards(0, 1, mfp(5, 0, [b"a"]), *(mfp(5, 400 + k, [b"b"]) for k in range(6))),
            "wide": boards(0, 2, mfp(5, 0, [b"ab", b"c"], wide=True), mfp(5, 2, [b"ab"], wide=True)),
            "strangers": boards(0, 2, mfp(6, 0, [b"ab", b"c"]), b"", b"no packet"),
            "mef": boards(1, 2, *(mef(2 * k, [bank(7, b"hello"), b""]) for k in range(4))),
            "mef-in-parts": boards(1, 3, *(mef(k, [bank(7, b"hello")]) for k in (1, 0, 4, 2))),
        },
        "fuzz_stream": {
            "in-pieces": b"\x06" + b"".join(mfp(5, 2 * k, [b"ab", b"c"]) for k in range(6)),
            "wide": b"\x1e"
            + mfp(5, 0, [b"ab", b"c"], wide=True)
            + mfp(6, 2, [b"ab"])
            + mfp(5, 2, [b"a"], wide=True)[:40],
            "end-of-run": b"\x09"
            + mfp(5, 0, [b"ab"])
            + struct.pack("<HHIQI", 0x40CE, 0, 20, 2**64 - 1, 0)
            + mfp(5, 1, [b"c"]),
            "garbage": b"\x03" + mfp(5, 0, [b"ab"]) + b"GET / HTTP/1.1 and more of that",
            "too-large": b"\xff" + mfp(5, 0, [b"ab"]) + mfp(5, 1, [bytes(1600)])[:64],
            "cut": b"\x02" + mfp(5, 0, [b"ab"])[:-1],
        },
        "fuzz_program": {
            "whole": program(2, *(mfp(5, 2 * k, [b"ab", b"c"]) for k in range(40))),
            "in-parts": program(4, *(mfp(5, k, [b"abc"]) for k in (0, 2, 1, 3, 3, 9, 4, 5))),
            "wide": program(1, mfp(5, 0, [b"ab"], wide=True), mfp(5, 1, [b"c"], wide=True)),
            "strangers": program(1, mfp(6, 0, [b"ab"]), b"none", mfp(5, 0, [b"a"]) + b"more", mfp(5, 0, [b"a"])),
            "lies": program(1, mfp(5, 0, [b"ab"])) + struct.pack("<BHBb", 1, 0, 0, 100),
            "back": program(1, mfp(5, 0, [b"ab"])) + struct.pack("<BHBb", 1, 0, 0, -2),
        },
    }


def main() -> None:
    for name, inputs in seeds().items():
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for label, data in inputs.items():
            (folder / f"seed-{label}").write_bytes(data)


if __name__ == "__main__":
    main()
