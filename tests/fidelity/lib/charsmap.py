# SPDX-License-Identifier: Apache-2.0
"""Makes the "precompiled_charsmap" of a SentencePiece normalizer: a darts-clone trie and its strings.

Every node has a block of 256 units of its own, which wastes space and needs no search; for small
tables only. Source: google/sentencepiece src/builder.cc, s-yata/darts-clone include/darts.h."""
import struct


def charsmap(pairs):
    """The bytes of a table of {key (str): replacement (str)}."""
    nodes, leaves, blob = [{}], [None], b''
    for key, value in pairs.items():
        n = 0
        for c in key.encode():
            if c not in nodes[n]:
                nodes.append({})
                leaves.append(None)
                nodes[n][c] = len(nodes) - 1
            n = nodes[n][c]
        leaves[n] = len(blob)
        blob += value.encode() + b'\0'
    units = [0] * (256 * (len(nodes) + 1))
    place = {0: 0}
    for i, children in enumerate(nodes):
        at, base = place[i], 256 * (i + 1)
        offset = at ^ base
        assert offset < 1 << 21, 'too many keys'
        units[at] = offset << 10 | (leaves[i] is not None) << 8 | units[at] & 0xff
        if leaves[i] is not None:
            units[base] = leaves[i] | 1 << 31
        for c, child in children.items():
            place[child] = base ^ c
            units[base ^ c] = c
    raw = struct.pack(f'<{len(units)}I', *units)
    return struct.pack('<I', len(raw)) + raw + blob
