# Runs one program in the sandbox and writes what came of it to the result channel.
#
# Descriptor 3 holds a secret of 32 bytes, then the job as JSON; descriptor 4 is the result channel,
# a socket that is only written to. The result is believed only behind the secret, so the secret is
# never held where the program can look it up: while the program runs it lies on the value stack of
# `_harness`'s frame alone, in no variable, cell, module or object that Python code can reach.
# The kernel refuses to close, copy or replace descriptor 4, so nobody can read it back either.


def _harness():
    import sys

    if sys.path and sys.path[0] == "":
        del sys.path[0]
    import atexit
    import builtins
    import errno
    import json
    import linecache
    import os
    import traceback

    # Programs meet limits of the sandbox through these numbers.
    denials = frozenset(
        (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EFBIG, errno.ENOSPC, errno.EDQUOT)
    )
    type_name = type.__dict__["__name__"].__get__
    escape = json.encoder.encode_basestring_ascii

    def guard():
        # Reading other frames' stacks, or all objects, is what no honest program does.
        denied = frozenset(
            (
                "gc.get_objects",
                "gc.get_referrers",
                "gc.get_referents",
                "sys._current_frames",
                "sys._current_exceptions",
                "sys.settrace",
                "sys.setprofile",
                "sys.monitoring.register_callback",
            )
        )

        def hook(event, arguments, denied=denied, refusal=PermissionError, number=errno.EPERM):
            if event in denied:
                raise refusal(number, "Operation not permitted in the sandbox", event)

        return hook

    def text(value, limit):
        # str() of anything, as plain text; None when it is longer than `limit` bytes.
        plain = value if type(value) is str else str(value)
        data = str.encode(plain, "utf-8", "backslashreplace")
        return None if len(data) > limit else data.decode("utf-8")

    def shown(value, limit=4096):
        try:
            plain = str(value)
            return str.encode(plain[:limit], "utf-8", "backslashreplace").decode("utf-8")
        except BaseException:
            return "(its text could not be had)"

    def place(error, files):
        # The innermost frame that is code of the job: (file, line).
        found = (None, None)
        step = error.__traceback__
        while step is not None:
            name = step.tb_frame.f_code.co_filename
            if name in files:
                found = (name, step.tb_lineno)
            step = step.tb_next
        return found

    def flush():
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                stream.flush()
            except BaseException:
                pass

    def show_traceback(error):
        # What `python program.py` would have printed, without this file's frames.
        try:
            step = error.__traceback__
            while step is not None and step.tb_frame.f_code.co_filename == "<string>":
                step = step.tb_next
            traceback.print_exception(type(error), error, step)
        except BaseException:
            pass

    def ended_by(error):
        # How an exception that reached the top is told.
        if isinstance(error, MemoryError):
            return ("memory",)
        if isinstance(error, SystemExit):
            code = error.code
            if code is None:
                return ("exited", 0)
            if isinstance(code, int):
                return ("exited", int(code) & 0xFF)
            try:
                print(code, file=sys.stderr)
            except BaseException:
                pass
            return ("exited", 1)
        show_traceback(error)
        kind = shown(type_name(type(error)), 256)
        name, line = place(error, ("<program>", "<checks>", "<setup>"))
        if isinstance(error, OSError) and error.errno in denials:
            return ("denied", kind + ": " + shown(error))
        if name == "<checks>":
            return ("check_failed", kind, shown(error), line)
        return ("raised", kind, shown(error), line)

    def encode(result):
        # JSON by hand: the `json` module may have been rewritten by the program.
        tag, *fields = result
        parts = []
        for field in fields:
            if field is None:
                parts.append("null")
            elif type(field) is int:
                parts.append(int.__repr__(field))
            else:
                parts.append(escape(field))
        return ('{"tag":"' + tag + '","fields":[' + ",".join(parts) + "]}").encode("ascii")

    def compiled(source, name):
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        return compile(source, name, "exec", 0, True)

    def prepare(job):
        # Three stages, each a closure over its own part of the job: the program's frames must not
        # lead to the checks. A stage gives None to go on, or ("stopped", what came of it); only
        # the last one, which no frame of the program leads to, can say "finished". The later
        # stages hold what they decide with as defaults, since names can be rebound.
        module = type(sys)("__main__")
        space = module.__dict__
        space["__builtins__"] = builtins
        sys.modules["__main__"] = module
        sys.argv[:] = ["program.py"]
        reserve = [bytearray(1 << 20)]

        def run(source=job["source"], setup=job["setup"], reserve=reserve):
            if setup is not None:
                try:
                    exec(compiled(setup, "<setup>"), space)
                except BaseException as error:
                    show_traceback(error)
                    kind = shown(type_name(type(error)), 256)
                    return ("stopped", ("setup_failed", kind + ": " + shown(error)))
            try:
                code = compiled(source, "<program>")
            except MemoryError:
                return ("stopped", ("memory",))
            except SyntaxError as error:
                return ("stopped", ("syntax_error", shown(error.msg), error.lineno))
            except Exception as error:
                what = shown(type_name(type(error)), 256) + ": " + shown(error)
                return ("stopped", ("syntax_error", what, None))
            try:
                exec(code, space)
            except BaseException as error:
                reserve.clear()
                return ("stopped", ended_by(error))
            return None

        checks = None
        if job["checks"] is not None:
            checks = compiled(job["checks"], "<checks>")
            linecache.cache.pop("<checks>")

        def check(
            result,
            checks=checks,
            execute=exec,
            module=builtins,
            names=builtins.__dict__,
            original=dict(builtins.__dict__),
            reserve=reserve,
        ):
            if result is not None or checks is None:
                return result
            # The checks are judged with Python's own built-ins, whatever the program made of them.
            names.clear()
            names.update(original)
            space["__builtins__"] = module
            try:
                execute(checks, space)
            except BaseException as error:
                reserve.clear()
                try:
                    return ("stopped", ended_by(error))
                except BaseException:
                    return ("stopped", None)
            return None

        def conclude(
            result,
            variable=job["variable"],
            limit=job["answer_bytes"],
            reserve=reserve,
            stops=frozenset(
                "setup_failed syntax_error memory exited denied check_failed raised".split()
            ),
        ):
            # The end of a Python program (threads joined, exit handlers run), then its answer.
            if result is not None:
                flush()
                ending = result[1]
                if type(ending) is tuple and ending and ending[0] in stops:
                    return ending
                return ("denied", "changing the sandbox's own functions")
            try:
                if "threading" in sys.modules:
                    sys.modules["threading"]._shutdown()
                atexit._run_exitfuncs()
                flush()
                if variable is None or variable not in space:
                    return ("finished", None, None)
                value = space[variable]
            except BaseException as error:
                reserve.clear()
                result = ended_by(error)
                flush()
                return result
            try:
                answer = text(value, limit)
            except MemoryError:
                return ("memory",)
            except BaseException as error:
                kind = shown(type_name(type(error)), 256)
                return ("unreadable", kind + ": " + shown(error))
            finally:
                flush()
            if answer is None:
                return ("unreadable", "its text is longer than " + str(limit) + " bytes")
            return ("finished", answer, shown(type_name(type(value)), 256))

        return run, check, conclude

    secret = [os.read(3, 32)]
    job = []
    while True:
        part = os.read(3, 1 << 16)
        if not part:
            break
        job.append(part)
    os.close(3)
    job = json.loads(b"".join(job))
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    try:
        run, check, conclude = prepare(job)
    except (SyntaxError, ValueError) as error:
        message = shown(getattr(error, "msg", None) or error)
        invalid = ("checks_invalid", message, getattr(error, "lineno", None))
        os.write(4, secret[0] + b"started\n" + secret[0] + encode(invalid))
        os._exit(0)
    os.write(4, secret[0] + b"started\n")
    stack = [run, check, conclude, encode, secret.pop(), 4, os.write]
    leave = os._exit
    sys.addaudithook(guard())
    del job, part, secret, run, check, conclude, encode, prepare, guard
    # One expression, evaluated from left to right: each `pop` moves a thing from the list to the
    # value stack, the innermost call runs the program, and nothing of ours runs after the last
    # stage but built-in operations on what already lies there.
    stack.pop()(stack.pop(), stack.pop() + stack.pop()(stack.pop()(stack.pop()(stack.pop()()))))
    leave(0)


_harness()
