//! Nothing that was started here outlives this program, however that ends.
//!
//! Who is asked to end has the brokers and the testers ended in order. Who is killed, or fails at once, cannot: a shell that
//! holds the other end of a pipe notes what was started, sees the pipe end with this program, and ends what is left then. It
//! takes a program for the one that was noted only where the time of its start is the same: numbers are given again.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// Reads `PID` by line, until there is no more. What leads a group goes with all of the group; brokers get some seconds.
const SCRIPT: &str = r#"
started() {
    { read -r stat < "/proc/$1/stat"; } 2>/dev/null || return 1
    set -- ${stat##*) }
    [ "$1" != Z ] && [ "$1" != X ] && echo "${20}"
}
left() {
    now=$(started "$1") && [ "$now" = "$2" ]
}
end() {
    for one in $noted; do
        pid=${one%:*}
        if left "$pid" "${one#*:}"; then
            kill -s "$1" -- "-$pid" 2>/dev/null || kill -s "$1" "$pid"
        fi
    done
}
noted=
while read -r pid; do
    kept=
    for one in $noted; do
        if left "${one%:*}" "${one#*:}"; then kept="$kept $one"; fi
    done
    noted=$kept
    if start=$(started "$pid"); then noted="$noted $pid:$start"; fi
done
[ -n "$noted" ] || exit 0
end TERM
for second in 1 2 3 4 5; do
    for one in $noted; do
        if left "${one%:*}" "${one#*:}"; then sleep 1; break; fi
    done
done
end KILL
"#;

/// Who ends what is left. It goes by itself when the value does.
struct Guard {
    notes: ChildStdin,
    #[cfg_attr(not(test), expect(dead_code, reason = "it goes by itself, and after this program"))]
    shell: Child,
}

impl Guard {
    fn start() -> io::Result<Guard> {
        let mut command = Command::new("/bin/sh");
        // In a group of its own: what a terminal ends it has to outlive.
        command.args(["-c", SCRIPT]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = command.spawn()?;
        let notes = shell.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Guard { notes, shell })
    }

    fn note(&mut self, pid: u32) -> io::Result<()> {
        writeln!(self.notes, "{pid}")
    }
}

/// Has a program end when this one does. Where no shell can be had it is as if nothing was said.
pub fn watch(child: &Child) {
    static GUARD: OnceLock<Option<Mutex<Guard>>> = OnceLock::new();
    let guard = GUARD.get_or_init(|| Guard::start().ok().map(Mutex::new));
    if let Some(mut guard) = guard.as_ref().and_then(|guard| guard.lock().ok()) {
        let _ = guard.note(child.id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Signal;
    use std::os::unix::process::ExitStatusExt;

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").process_group(0).spawn().unwrap()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_was_noted_ends_with_the_pipe_and_nothing_else_does() {
        let mut guard = Guard::start().unwrap();
        let (mut noted, mut ended, mut other) = (sleeper(), sleeper(), sleeper());
        let mut within = Command::new("sleep").arg("1000").spawn().unwrap();
        for child in [&ended, &noted, &within] {
            guard.note(child.id()).unwrap();
        }
        ended.kill().unwrap();
        ended.wait().unwrap();
        let Guard { notes, mut shell } = guard;
        drop(notes);
        // It would not return.
        assert_eq!(noted.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        assert_eq!(within.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        assert!(shell.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn who_does_not_listen_is_killed() {
        let mut guard = Guard::start().unwrap();
        let mut deaf = Command::new("sh");
        deaf.args(["-c", "trap '' TERM; echo; while :; do sleep 1; done"]).process_group(0);
        let mut deaf = deaf.stdout(Stdio::piped()).spawn().unwrap();
        // It is deaf from its first line on.
        let mut line = [0];
        std::io::Read::read_exact(deaf.stdout.as_mut().unwrap(), &mut line).unwrap();
        guard.note(deaf.id()).unwrap();
        drop(guard.notes);
        assert_eq!(deaf.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
        guard.shell.wait().unwrap();
    }
}
