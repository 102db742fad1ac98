"""What the file of a program says of it (elf(5)), as far as the system's loader goes by it."""

import struct

INTERPRETER, LOAD, DYNAMIC = 3, 1, 2  # PT_INTERP, PT_LOAD, PT_DYNAMIC
NEEDED, STRINGS = 1, 5  # DT_NEEDED, DT_STRTAB


class Program:
    """Of a 64-bit file: `needed` are the libraries that it names itself. OSError or ValueError if it cannot be read."""

    def __init__(self, path: str):
        with open(path, "rb") as file:
            head = file.read(64)
            self.is_elf = head[:4] == b"\x7fELF" and len(head) == 64
            if not self.is_elf:
                return
            with open("/proc/self/exe", "rb") as own:
                ours = own.read(64)
            self.bits = 32 * head[4]
            self.is_for_this_processor = head[4] == ours[4] and head[18:20] == ours[18:20]
            if not self.is_for_this_processor:
                return
            try:
                self._read_segments(file, head)
            except (struct.error, IndexError) as error:
                raise ValueError(f"{path}: {error}") from None

    def _read_segments(self, file, head: bytes) -> None:
        at, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
        file.seek(at)
        table = file.read(size * count)
        segments = [struct.unpack_from("<IIQQQQQ", table, size * index) for index in range(count)]
        self.has_interpreter = any(segment[0] == INTERPRETER for segment in segments)
        self.needed = []
        loads = [(address, offset, length) for kind, _, offset, address, _, length, _ in segments if kind == LOAD]
        for kind, _, offset, _, _, length, _ in segments:
            if kind == DYNAMIC:
                file.seek(offset)
                entries = list(struct.iter_unpack("<qQ", file.read(length // 16 * 16)))
                strings = next((value for tag, value in entries if tag == STRINGS), None)
                names = [value for tag, value in entries if tag == NEEDED]
                begin = next((off + strings - at for at, off, long in loads if strings and at <= strings < at + long), None)
                self.needed = [self._text_at(file, begin + name) for name in names] if begin is not None else []

    @staticmethod
    def _text_at(file, offset: int) -> str:
        file.seek(offset)
        return file.read(256).split(b"\0")[0].decode(errors="replace")
