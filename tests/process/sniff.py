"""Writes all packets of a network device to a pcap file, each at once; says "ready" when it listens.

usage: sniff.py DEVICE FILE
"""

import socket
import struct
import sys
from pathlib import Path

ALL_PROTOCOLS = 3
ETHERNET = 1
LONGEST = 65535

with (
    Path(sys.argv[2]).open("wb", buffering=0) as file,
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)) as device,
):
    device.bind((sys.argv[1], 0))
    file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, LONGEST, ETHERNET))
    print("ready", flush=True)
    while True:
        packet = device.recv(LONGEST)
        file.write(struct.pack("<IIII", 0, 0, len(packet), len(packet)) + packet)
