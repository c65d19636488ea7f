# Calls a function on inputs, in the sandbox, and gives back what it returned as plain data.
#
# Runs before the program as a module of its own, so that nothing the program names hides what is used
# here. What the program can reach here it may spoil; it then gets wrong outputs, since nothing here knows
# the right ones, and what counts is compared in another process.
#
# Values travel as JSON. None, bools, whole numbers, floats (NaN and Infinity too), texts and lists are
# themselves; all else is an object of one field: t tuple, s set, f frozenset, d pairs of a dict, c complex,
# b bytes in hexadecimal, u text that is no UTF-8, q a ratio, h a huge whole number in hexadecimal, x what is
# no plain data: its type's name. A long value that is nothing but None, bools, whole numbers, texts, lists and
# tuples may travel as k: the SHA-256 of the text that it shares with all its equals.

import collections
import decimal
import fractions
import hashlib
import json
import random
import signal
import sys
import time

try:
    import zlib
except ImportError:
    zlib = None

quoted = json.encoder.encode_basestring_ascii
name_of = type.__dict__["__name__"].__get__
DEEPEST = 150
# Values of one answer, bytes of it packed and unpacked.
MOST_VALUES = 4_000_000
MOST_PACKED = 120_000
MOST_PLAIN = 24 << 20
# From so many bits on a number is written in hexadecimal, which takes no time.
HUGE_BITS = 4096
# From so many bytes on a value is told by its digest where that will do.
LONG = 32_000
# Where a set is compared, what can be gone through counts as what it holds.
ITERATORS = tuple(
    type(one)
    for one in (
        iter(()), iter([]), iter(""), iter(range(0)), iter({}), iter(set()), iter({}.values()),
        iter({}.items()), map(abs, ()), filter(None, ()), zip(), reversed([]), enumerate(()),
        (0 for _ in ()), {}.keys(), {}.values(), {}.items(), range(0), collections.deque(),
    )
)


class TooLong(BaseException):
    pass


class TooLarge(Exception):
    pass


class Writer:
    # A value as JSON; nothing of the value's own code is run unless its members are asked for.

    def __init__(self, members=False):
        self.parts = []
        self.members = members
        self.left = MOST_VALUES

    def text(self, value):
        self.write(value, 0)
        return "".join(self.parts)

    def several(self, mark, values, depth, close):
        put = self.parts.append
        put(mark)
        first = True
        for one in values:
            if not first:
                put(",")
            first = False
            self.write(one, depth + 1)
        put(close)

    def write(self, value, depth):
        put = self.parts.append
        self.left -= 1
        if self.left < 0:
            raise TooLarge
        kind = type(value)
        if value is None:
            put("null")
        elif value is True or value is False:
            put("true" if value else "false")
        elif kind is int:
            if value.bit_length() > HUGE_BITS:
                self.left -= value.bit_length() >> 7
                put('{"h":"' + hex(value) + '"}')
            else:
                put(int.__repr__(value))
        elif kind is float:
            put(self.number(value))
        elif kind is str:
            self.left -= len(value) >> 4
            try:
                value.encode("utf-8")
                put(quoted(value))
            except UnicodeEncodeError:
                put('{"u":"' + value.encode("utf-8", "surrogatepass").hex() + '"}')
        elif depth > DEEPEST:
            put('{"x":"too deep"}')
        elif kind is list:
            if value and small_numbers(value):
                self.left -= len(value)
                if self.left < 0:
                    raise TooLarge
                put("[" + ",".join(map(int.__repr__, value)) + "]")
            else:
                self.several("[", value, depth, "]")
        elif kind is tuple:
            self.several('{"t":[', value, depth, "]}")
        elif kind is set:
            self.several('{"s":[', value, depth, "]}")
        elif kind is frozenset:
            self.several('{"f":[', value, depth, "]}")
        elif kind is dict or kind in (
            collections.defaultdict, collections.OrderedDict, collections.Counter
        ):
            put('{"d":[')
            for at, (key, one) in enumerate(dict.items(value)):
                self.several(",[" if at else "[", (key, one), depth, "]")
            put("]}")
        elif kind is complex:
            put('{"c":[' + self.number(value.real) + "," + self.number(value.imag) + "]}")
        elif kind is bytes or kind is bytearray:
            self.left -= len(value) >> 4
            put('{"b":"' + value.hex() + '"}')
        elif kind is fractions.Fraction or (kind is decimal.Decimal and value.is_finite()):
            above, below = value.as_integer_ratio()
            put('{"q":["' + int.__repr__(above) + '","' + int.__repr__(below) + '"]}')
        elif kind is KEYS:
            self.several('{"s":[', value, depth, "]}")
        elif self.members and kind in ITERATORS:
            self.several("[", value, depth, "]")
        elif self.is_numpy(kind):
            # A scalar is what Python's own number of it is.
            self.write(value.item(), depth + 1)
        else:
            put('{"x":' + quoted(str(name_of(kind))[:100]) + "}")

    @staticmethod
    def is_numpy(kind):
        numpy = sys.modules.get("numpy")
        generic = getattr(numpy, "generic", None)
        return isinstance(generic, type) and generic in kind.__mro__

    @staticmethod
    def number(value):
        if value != value:
            return "NaN"
        if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
        return float.__repr__(value)


KEYS = type({}.keys())
HUGE = 1 << (HUGE_BITS - 1)


def small_numbers(values):
    # Whether a list holds nothing but whole numbers that are not huge.
    return set(map(type, values)) == {int} and -HUGE < min(values) and max(values) < HUGE


class Mixed(Exception):
    pass


def key(value, put):
    # The text that a value shares with all its equals, for the kinds of values that have a short one.
    kind = type(value)
    if value is None:
        put("N;")
    elif kind is int or kind is bool:
        if value.bit_length() > HUGE_BITS:
            put("h" + hex(value) + ";")
        else:
            put("n" + int.__repr__(value) + ";")
    elif kind is str:
        put("s" + str(len(value.encode("utf-8"))) + ":" + value)
    elif kind is list or kind is tuple:
        put(("L" if kind is list else "T") + str(len(value)) + "[")
        if value and small_numbers(value):
            put("n" + ";n".join(map(int.__repr__, value)) + ";")
        else:
            for one in value:
                key(one, put)
        put("]")
    else:
        raise Mixed


def told(value):
    # A value as JSON, or a long one's digest where no more than equality is asked.
    text = Writer().text(value)
    if job.get("exact") and len(text) > LONG:
        try:
            parts = []
            key(value, parts.append)
            return '{"k":"' + hashlib.sha256("".join(parts).encode("utf-8")).hexdigest() + '"}'
        except (Mixed, UnicodeEncodeError):
            pass
    return text


def read(wire):
    # The value of a piece of JSON, new each time.
    if type(wire) is list:
        return [read(one) for one in wire]
    if type(wire) is not dict:
        return wire
    ((kind, inner),) = wire.items()
    if kind == "t":
        return tuple([read(one) for one in inner])
    if kind == "s":
        return set([read(one) for one in inner])
    if kind == "f":
        return frozenset([read(one) for one in inner])
    if kind == "d":
        return {read(key): read(one) for key, one in inner}
    if kind == "c":
        return complex(*inner)
    if kind == "b":
        return bytes.fromhex(inner)
    if kind == "u":
        return bytes.fromhex(inner).decode("utf-8", "surrogatepass")
    if kind == "h":
        return int(inner, 16)
    if kind == "q":
        return fractions.Fraction(int(inner[0]), int(inner[1]))
    # What is no plain data equals nothing.
    return object()


class Pack:
    # The answer's text, as much of it as may be sent.

    def __init__(self):
        self.squeeze = zlib.compressobj(6) if zlib else None
        self.done = []
        self.plain = self.packed = 0

    def add(self, text, always=False):
        # Whether it was added; what does not fit is not.
        piece = data = text.encode("ascii")
        if self.squeeze is not None:
            before = self.squeeze.copy()
            piece = self.squeeze.compress(data) + self.squeeze.flush(zlib.Z_SYNC_FLUSH)
        fits = self.packed + len(piece) <= MOST_PACKED and self.plain + len(data) <= MOST_PLAIN
        if not fits and not always:
            if self.squeeze is not None:
                self.squeeze = before
            return False
        self.done.append(piece)
        self.packed += len(piece)
        self.plain += len(data)
        return True

    def text(self):
        if self.squeeze is None:
            return "p" + b"".join(self.done).decode("ascii")
        return "z" + (b"".join(self.done) + self.squeeze.flush()).hex()


armed = [False]


def alarm(*_):
    if armed[0]:
        raise TooLong


def timed(function, arguments, seconds, members):
    # One call, ended when it takes more processor time than it may: a line of JSON, and whether to go on.
    # It is asked to end again and again, in case it holds on.
    start = time.process_time()
    try:
        try:
            armed[0] = True
            signal.setitimer(signal.ITIMER_PROF, seconds, 0.05)
            signal.setitimer(signal.ITIMER_REAL, 20 + 10 * seconds, 0.5)
            value = function(*arguments)
            if members:
                value = Writer(True).text(value)
        finally:
            armed[0] = False
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        spent = time.process_time() - start
        if spent > seconds:
            return '["time"]', False
        value = value if members else told(value)
        return '["value",' + value + "," + float.__repr__(spent) + "]", True
    except TooLong:
        return '["time"]', False
    except MemoryError:
        return '["memory"]', False
    except TooLarge:
        return '["large"]', True
    except BaseException as error:
        return '["raised",' + quoted(str(name_of(type(error)))[:100]) + "]", True


def outputs():
    # What the program's function gives for each input from the first asked for on.
    space = sys.modules["__main__"].__dict__
    pack = Pack()
    function = space.get(job["entry_point"])
    if not callable(function):
        pack.add('["missing"]\n')
        return pack.text()
    signal.signal(signal.SIGPROF, alarm)
    signal.signal(signal.SIGALRM, alarm)
    fresh = True
    for at in range(job["first"], len(job["inputs"])):
        arguments = [read(one) for one in job["inputs"][at]]
        line, going = timed(function, arguments, job["seconds"][at], job["members"])
        if not pack.add(line + "\n"):
            # The rest is asked for anew, without this one if it alone is more than may be sent.
            pack.add('["large"]\n["more"]\n' if fresh else '["more"]\n', always=True)
            break
        fresh = False
        if not going:
            break
    return pack.text()


def seeded_test(candidate):
    # The data set's test with `candidate` in the function's place, its draws the same every time.
    space = sys.modules["__main__"].__dict__
    space[job["entry_point"]] = candidate
    random.seed(0)
    exec(compile(job["test"], "<test>", "exec", 0, True), space)
    if "check" in space and "def check(" in job["test"]:
        space["check"](candidate)


def record():
    # The inputs that the test gives to the reference, with the time that each took.
    function = sys.modules["__main__"].__dict__[job["entry_point"]]
    calls, inside = [], [False]

    def recorder(*arguments):
        if inside[0]:
            return function(*arguments)
        state = random.getstate()
        line = Writer().text(list(arguments))
        start = time.process_time()
        inside[0] = True
        try:
            value = function(*arguments)
        finally:
            inside[0] = False
            random.setstate(state)
        calls.append("[" + line + "," + float.__repr__(time.process_time() - start) + "]\n")
        return value

    seeded_test(recorder)
    pack = Pack()
    for call in calls:
        if not pack.add(call):
            raise TooLarge
    return pack.text()


def replay():
    # The test again, with outputs that were had elsewhere: `passed`, or how many calls it made and what
    # stopped it. A long output, of which the digest came, is the reference's where that has this digest.
    function = sys.modules["__main__"].__dict__[job["entry_point"]]
    made, inside = [0], [False]

    def replayer(*arguments):
        if inside[0]:
            return function(*arguments)
        at = made[0]
        made[0] += 1
        asked = Writer().text(list(arguments))
        if at >= len(job["outputs"]) or json.dumps(json.loads(asked)) != json.dumps(job["inputs"][at]):
            raise RuntimeError("the test does not ask what it asked the reference")
        output = job["outputs"][at]
        if type(output) is not dict or "k" not in output:
            return read(output)
        state = random.getstate()
        inside[0] = True
        try:
            value = function(*[read(one) for one in json.loads(asked)])
        finally:
            inside[0] = False
            random.setstate(state)
        return value if json.loads(told(value)) == output else object()

    try:
        seeded_test(replayer)
    except BaseException as error:
        return "failed " + str(made[0]) + " " + name_of(type(error))
    return "passed"
