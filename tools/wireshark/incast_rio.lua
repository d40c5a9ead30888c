-- Wireshark dissector of SoftRIO's udp fabric: reliable datagrams (src/transport/reliable/packet.h), and in their bodies
-- RapidIO packets (src/softrio/wire/packet.h) and channelised messages (src/softrio/udp/channels.h).
--
--   wireshark -X lua_script:tools/wireshark/incast_rio.lua        tshark -X lua_script:... -r FILE -V
--
-- Datagrams are recognised by their first four bytes, on any port. Filters: incast.kind == 3, rio.destination == 5, ...

local incast = Proto("incast", "Incast reliable datagram")
local rio = Proto("rio", "RapidIO")

local kinds = {
    [1] = "hello", [2] = "welcome", [3] = "data", [4] = "ack", [5] = "ping", [6] = "bye", [7] = "unknown",
}
local formats = {
    [2] = "NREAD", [5] = "NWRITE", [6] = "SWRITE", [8] = "MAINTENANCE", [10] = "DOORBELL", [11] = "MESSAGE",
    [13] = "RESPONSE",
}
local maintenance = {[0] = "read", [1] = "write", [2] = "read response", [3] = "write response"}
local statuses = {[0] = "DONE", [3] = "RETRY", [7] = "ERROR"}
local operations = {[0] = "request", [1] = "accept", [2] = "close", [3] = "data", [4] = "credit"}

local f = incast.fields
f.version = ProtoField.uint8("incast.version", "Version")
f.kind = ProtoField.uint8("incast.kind", "Kind", base.DEC, kinds)
f.time = ProtoField.uint32("incast.time", "Time (us)")
f.token = ProtoField.uint64("incast.token", "Token of the addressee", base.HEX)
f.sequence = ProtoField.uint64("incast.sequence", "Sequence")
f.lane_sequence = ProtoField.uint32("incast.lane_sequence", "Number in its lane, or window")
f.lane = ProtoField.uint8("incast.lane", "Lane")
f.bytes = ProtoField.uint16("incast.bytes", "Bytes that follow")
f.bitmap = ProtoField.bytes("incast.bitmap", "Received behind the sequence")
f.own_token = ProtoField.uint64("incast.own_token", "Token of the sender", base.HEX)
f.greeting = ProtoField.bytes("incast.greeting", "Greeting")

local r = rio.fields
r.format = ProtoField.uint8("rio.format", "Format type", base.DEC, formats)
r.destination = ProtoField.uint16("rio.destination", "Destination id")
r.source = ProtoField.uint16("rio.source", "Source id")
r.transaction = ProtoField.uint8("rio.transaction", "Transaction")
r.answered = ProtoField.bool("rio.answered", "With response")
r.size = ProtoField.uint8("rio.size", "Size code")
r.address = ProtoField.uint64("rio.address", "Address", base.HEX)
r.status = ProtoField.uint8("rio.status", "Status", base.DEC, statuses)
r.info = ProtoField.uint16("rio.info", "Info", base.HEX)
r.hop_count = ProtoField.uint8("rio.hop_count", "Hop count")
r.offset = ProtoField.uint24("rio.offset", "Register", base.HEX)
r.segment = ProtoField.uint8("rio.segment", "Segment")
r.mailbox = ProtoField.uint8("rio.mailbox", "Mailbox")
r.last_segment = ProtoField.uint8("rio.last_segment", "Last segment")
r.data = ProtoField.bytes("rio.data", "Data")
r.crc = ProtoField.uint16("rio.crc", "CRC", base.HEX)
r.cm_operation = ProtoField.uint8("rio.cm.operation", "Channel operation", base.DEC, operations)
r.cm_target = ProtoField.uint16("rio.cm.target", "Destination channel")
r.cm_source = ProtoField.uint16("rio.cm.source", "Source channel")
r.cm_bytes = ProtoField.uint16("rio.cm.bytes", "Message bytes")

local bad_crc = ProtoExpert.new("rio.crc.bad", "The CRC is wrong", expert.group.CHECKSUM, expert.severity.ERROR)
local cut_short = ProtoExpert.new("rio.short", "The packet is too short", expert.group.MALFORMED, expert.severity.ERROR)
rio.experts = {bad_crc, cut_short}

local crc_table = {}
for byte = 0, 255 do
    local crc = bit.lshift(byte, 8)
    for _ = 1, 8 do
        local top = bit.band(crc, 0x8000) ~= 0
        crc = bit.band(bit.lshift(crc, 1), 0xffff)
        if top then crc = bit.bxor(crc, 0x1021) end
    end
    crc_table[byte] = crc
end

local function crc16(range)
    local crc = 0xffff
    local bytes = range:raw()
    for index = 1, #bytes do
        local byte = bit.bxor(bit.rshift(crc, 8), bytes:byte(index))
        crc = bit.bxor(bit.band(bit.lshift(crc, 8), 0xffff), crc_table[byte])
    end
    return crc
end

local function show_message(buffer, at, size, tree)
    if size < 20 or buffer(at + 10, 1):uint() ~= 0x55 then return "" end
    tree:add(r.cm_operation, buffer(at + 11, 1))
    tree:add(r.cm_target, buffer(at + 12, 2))
    tree:add(r.cm_source, buffer(at + 14, 2))
    tree:add(r.cm_bytes, buffer(at + 16, 2))
    return " CM " .. (operations[buffer(at + 11, 1):uint()] or "?")
end

-- What follows the ids, up to the CRC; returns words for the summary.
local function show_body(buffer, at, stop, format, tree)
    local first = buffer(at, 1):uint()
    if format == 2 or format == 5 then
        tree:add(r.size, buffer(at, 1), bit.band(first, 15))
        tree:add(r.answered, buffer(at, 1), format == 2 or bit.rshift(first, 4) == 5)
        tree:add(r.transaction, buffer(at + 1, 1))
        tree:add(r.address, buffer(at + 2, 8), UInt64(bit.band(buffer(at + 6, 4):uint(), 0xfffffff8),
                                                      buffer(at + 2, 4):uint()))
        if at + 10 < stop then tree:add(r.data, buffer(at + 10, stop - at - 10)) end
        return string.format("%s %d B", format == 5 and bit.rshift(first, 4) == 5 and "_R" or "", stop - at - 10)
    elseif format == 6 then
        tree:add(r.address, buffer(at, 8))
        tree:add(r.data, buffer(at + 8, stop - at - 8))
        return string.format(" %d B", stop - at - 8)
    elseif format == 8 then
        local kind = bit.rshift(first, 4)
        tree:add(r.transaction, buffer(at + 1, 1))
        tree:add(r.hop_count, buffer(at + 2, 1))
        if kind <= 1 then
            tree:add(r.offset, buffer(at + 3, 3))
        else
            tree:add(r.status, buffer(at, 1), bit.band(first, 15))
        end
        if at + 6 < stop then tree:add(r.data, buffer(at + 6, stop - at - 6)) end
        return " " .. (maintenance[kind] or "?")
    elseif format == 10 then
        tree:add(r.transaction, buffer(at + 1, 1))
        tree:add(r.info, buffer(at + 2, 2))
        return string.format(" 0x%04x", buffer(at + 2, 2):uint())
    elseif format == 11 then
        local segment = bit.band(buffer(at + 1, 1):uint(), 15)
        tree:add(r.last_segment, buffer(at, 1), bit.rshift(first, 4))
        tree:add(r.mailbox, buffer(at + 1, 1), bit.band(bit.rshift(buffer(at + 1, 1):uint(), 4), 3))
        tree:add(r.segment, buffer(at + 1, 1), segment)
        tree:add(r.data, buffer(at + 2, stop - at - 2))
        return segment == 0 and show_message(buffer, at + 2, stop - at - 2, tree) or ""
    elseif format == 13 then
        tree:add(r.status, buffer(at, 1), bit.band(first, 15))
        tree:add(r.transaction, buffer(at + 1, 1))
        if at + 2 < stop then tree:add(r.data, buffer(at + 2, stop - at - 2)) end
        return " " .. (statuses[bit.band(first, 15)] or "?")
    end
    return ""
end

-- The least bytes between ids and CRC.
local least = {[2] = 10, [5] = 18, [6] = 16, [8] = 6, [10] = 4, [11] = 10, [13] = 2}

local function show_packet(buffer, at, size, root)
    local tree = root:add(rio, buffer(at, size))
    local head = size >= 2 and buffer(at + 1, 1):uint() or 0
    local format, id_bytes = bit.band(head, 15), bit.band(head, 0x30) == 0 and 1 or 2
    local body = at + 2 + 2 * id_bytes
    if size < 2 + 2 * id_bytes + (least[format] or 0) + 2 then
        tree:add_proto_expert_info(cut_short)
        return "short packet"
    end
    tree:add(r.format, buffer(at + 1, 1), format)
    tree:add(r.destination, buffer(at + 2, id_bytes))
    tree:add(r.source, buffer(at + 2 + id_bytes, id_bytes))
    local words = (formats[format] or "?") .. show_body(buffer, body, at + size - 2, format, tree)
    local crc = tree:add(r.crc, buffer(at + size - 2, 2))
    if crc16(buffer(at, size - 2)) ~= buffer(at + size - 2, 2):uint() then
        crc:add_proto_expert_info(bad_crc)
        words = words .. " (bad CRC)"
    end
    tree:append_text(string.format(", %s, %d to %d", words, buffer(at + 2 + id_bytes, id_bytes):uint(),
                                   buffer(at + 2, id_bytes):uint()))
    return words
end

function incast.dissector(buffer, packet, root)
    if buffer:len() < 32 then return 0 end
    packet.cols.protocol = "Incast"
    local tree = root:add(incast, buffer())
    local kind = buffer(3, 1):uint()
    tree:add(f.version, buffer(2, 1))
    tree:add(f.kind, buffer(3, 1))
    tree:add_le(f.time, buffer(4, 4))
    tree:add_le(f.token, buffer(8, 8))
    tree:add_le(f.sequence, buffer(16, 8))
    tree:add_le(f.lane_sequence, buffer(24, 4))
    tree:add(f.lane, buffer(28, 1))
    tree:add_le(f.bytes, buffer(30, 2))
    local name = kinds[kind] or "?"
    tree:append_text(string.format(", %s", name))
    local words = {}
    if (kind == 1 or kind == 2) and buffer:len() >= 40 then
        tree:add_le(f.own_token, buffer(32, 8))
        if buffer:len() > 40 then tree:add(f.greeting, buffer(40)) end
    elseif kind == 4 and buffer:len() > 32 then
        tree:add(f.bitmap, buffer(32))
    elseif kind == 3 then
        local at = 32
        while at + 2 <= buffer:len() do
            local size = buffer(at, 2):uint()
            at = at + 2
            if size == 0 or at + size > buffer:len() then break end
            words[#words + 1] = show_packet(buffer, at, size, root)
            at = at + size
        end
        packet.cols.protocol = "RapidIO"
    end
    packet.cols.info = name .. " " .. tostring(buffer(16, 8):le_uint64()) ..
                       (#words > 0 and ": " .. table.concat(words, ", ") or "")
    return buffer:len()
end

incast:register_heuristic("udp", function(buffer, packet, root)
    if buffer:len() < 32 or buffer(0, 2):le_uint() ~= 0x5244 or buffer(2, 1):uint() ~= 2 or
       buffer(30, 2):le_uint() ~= buffer:len() - 32 then
        return false
    end
    incast.dissector(buffer, packet, root)
    return true
end)
