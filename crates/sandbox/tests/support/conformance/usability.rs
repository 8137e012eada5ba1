//! That a sandbox is a machine as people expect one: shells, interpreters and tools work in it, as the user `sandbox` in a
//! home, with the host's time zone.

use conjure_sandbox::{Command, CommandEnd, Executor};

use crate::support::{Fixture, Kind, bash, options, output_of};

pub(crate) async fn a_shell_finds_a_usual_machine(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    assert_eq!(
        bash(&fixture, "whoami; id -un; id -gn; pwd; echo ~ $USER $LANG $TZ; hostname").await,
        "sandbox\nsandbox\nsandbox\n/workspace\n/home/sandbox sandbox C.UTF-8 Asia/Tokyo\nsandbox\n"
    );
    assert_eq!(
        bash(&fixture, "date +%Z; locale charmap; printf 'gr\\xc3\\xb6\\xc3\\x9fer' | wc -m").await,
        "JST\nUTF-8\n6\n"
    );
    // Owners by their names.
    fixture.put("given", "x").await;
    let given = if kind.maps_owners() { "sandbox sandbox given\n" } else { "" };
    assert_eq!(
        bash(
            &fixture,
            &format!(
                "touch made; ls -l {} made | tr -s ' ' | cut -d' ' -f3,4,9",
                if given.is_empty() { "" } else { "given" }
            )
        )
        .await,
        format!("{given}sandbox sandbox made\n")
    );
    assert_eq!(
        bash(
            &fixture,
            "getent hosts localhost | tr -s ' ' | cut -d' ' -f2; getent passwd $(id -u) | cut -d: -f6"
        )
        .await,
        "localhost\n/home/sandbox\n"
    );
    // A script with an interpreter line, and one that a command has just made.
    assert_eq!(
        bash(&fixture, "printf '#!/usr/bin/env bash\\necho made\\n' > run && chmod +x run && ./run").await,
        "made\n"
    );
}

pub(crate) async fn job_control_and_substitution_work_in_a_shell(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    assert_eq!(
        bash(&fixture, "cat <(echo a) <<< b; sleep 0 & wait; exec 3>&1; echo c > /dev/fd/3").await,
        "a\nc\n"
    );
    let documents = "name=world\ncat <<END\nhello $name\nEND\ncat <<'END'\nhello $name\nEND\n\
                     diff <(seq 3) <(seq 4) | tail -n 1; seq 3 | tee >(wc -l > count) > /dev/null; \
                     until [ -s count ]; do :; done; cat count";
    assert_eq!(bash(&fixture, documents).await, "hello world\nhello $name\n> 4\n3\n");
    // Jobs, which an interactive shell announces; there is no terminal to complain about in one that is none.
    let jobs = "set -m; sleep 1000 & jobs | tr -s ' '; kill -STOP %1; \
                until jobs %1 | grep -q Stopped; do :; done; kill -CONT %1; kill %1; wait %1 2> /dev/null; echo $?";
    let output = bash(&fixture, jobs).await;
    assert!(output.starts_with("[1]+ Running sleep 1000 &\n") && output.ends_with("143\n"), "{output}");
    assert_eq!(bash(&fixture, "trap 'echo trapped' TERM; kill $$; echo after").await, "trapped\nafter\n");
    let limits = "ulimit -n > /dev/null && ulimit -u > /dev/null && ulimit -Sn 64 && ulimit -Sn && \
                  (ulimit -f 1; head -c 9999 /dev/zero > big; echo $?) 2> /dev/null";
    assert_eq!(bash(&fixture, limits).await, "64\n153\n");
    // A pseudo terminal.
    let terminal = "script -qec tty /dev/null | tr -d '\\r' | cut -d/ -f1-3";
    if fixture.has("script").await {
        assert_eq!(bash(&fixture, terminal).await, "/dev/pts\n");
    }
}

pub(crate) async fn devices_are_there_and_temporary_files_work(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let places = "for it in \"$(mktemp)\" \"$(mktemp -d)/x\" ~/.cache/x /var/tmp/x /dev/shm/x ./x; do \
                  mkdir -p \"${it%/*}\" && echo y > \"$it\" && cat \"$it\"; done";
    assert_eq!(bash(&fixture, places).await, "y\n".repeat(6));
    let devices = "echo gone > /dev/null; head -c 3 /dev/zero | wc -c; head -c 3 /dev/urandom | wc -c; \
                   head -c 3 /dev/random | wc -c; echo in | cat /dev/stdin; echo out > /dev/stdout; \
                   (echo err > /dev/stderr) 2>&1; ls /dev/fd/ | head -n 3 | tr '\\n' ' '; \
                   echo x 2> /dev/null > /dev/full || echo full";
    assert_eq!(bash(&fixture, devices).await, "3\n3\n3\nin\nout\nerr\n0 1 2 full\n");
    // With so little memory, `sort` works through files of `/tmp`.
    let sort = "seq 200000 | sort -R | sort -n -S 256k -T /tmp | tail -n 1; ls /tmp | grep -c ^sort";
    let sorted = fixture.bash(sort).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&sorted.stdout.head), "200000\n0\n");
}

pub(crate) async fn python_works(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    if !fixture.has("python3").await {
        return;
    }
    let program = "import getpass, locale, os, pwd, sys, tempfile, time\n\
        print(pwd.getpwuid(os.getuid()).pw_dir, getpass.getuser(), os.path.expanduser('~'))\n\
        with tempfile.NamedTemporaryFile() as f: print(f.name.startswith('/tmp/'), f.write(b'x'))\n\
        print(time.tzname[0], os.getcwd(), os.path.isdir(tempfile.mkdtemp()))\n\
        print(sys.getfilesystemencoding(), sys.stdout.encoding, locale.getpreferredencoding(), 'gr\\u00fc\\u00dfe')\n\
        open('\\u00fc.txt', 'w').write('\\u00fc'); print(os.listdir('.'), open('\\u00fc.txt').read())";
    assert_eq!(
        fixture.python(program).await,
        "/home/sandbox sandbox /home/sandbox\nTrue 1\nJST /workspace True\nutf-8 utf-8 UTF-8 grüße\n['ü.txt'] ü\n"
    );
    let program = "import multiprocessing, sqlite3, subprocess, threading\n\
        queue = multiprocessing.Queue()\n\
        child = multiprocessing.Process(target=queue.put, args=(7,)); child.start(); print(queue.get()); child.join()\n\
        with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))\n\
        base = sqlite3.connect('data.db'); base.execute('create table t (x)'); base.execute('insert into t values (3)')\n\
        base.commit(); print(base.execute('select x from t').fetchall())\n\
        print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip())\n\
        t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()";
    assert_eq!(fixture.python(program).await, "7\n[1, 2]\n[(3,)]\nchild\nthread\n");
    let shared = "from multiprocessing import shared_memory\n\
        block = shared_memory.SharedMemory(create=True, size=4096); block.buf[0] = 5; print(block.buf[0])\n\
        block.close(); block.unlink()";
    assert_eq!(fixture.python(shared).await, "5\n");
    let zone = "import zoneinfo, datetime as d\n\
        print(d.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin')).utcoffset())";
    assert_eq!(fixture.python(zone).await, "2:00:00\n");
}

/// Certificates of the machine or the image, where there are any, and Python's virtual environments.
pub(crate) async fn python_has_certificates_and_environments(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    if !fixture.has("python3").await {
        return;
    }
    let program = "import os, ssl\n\
        context = ssl.create_default_context(); paths = ssl.get_default_verify_paths()\n\
        has_any = any(path and os.path.exists(path) for path in [paths.cafile, '/etc/ssl/certs/ca-certificates.crt'])\n\
        print(context.verify_mode.name, len(context.get_ca_certs()) > 0 or not has_any)";
    assert_eq!(fixture.python(program).await, "CERT_REQUIRED True\n");
    if fixture.bash("python3 -c 'import ensurepip, venv'").await.unwrap().end != CommandEnd::Exited(0) {
        fixture.skip("Python has no `venv` in the sandbox", "python3-venv");
        return;
    }
    let venv = "python3 -m venv --without-pip env && env/bin/python -c 'import sys; print(sys.prefix)' && \
                . env/bin/activate && python -c 'import sys; print(sys.prefix != sys.base_prefix)'";
    assert_eq!(bash(&fixture, venv).await, "/workspace/env\nTrue\n");
}

pub(crate) async fn node_works_where_it_is_installed(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    if !fixture.has("node").await {
        return;
    }
    let program = "const os = require('os'), fs = require('fs');\n\
        console.log(os.userInfo().username, os.homedir(), os.tmpdir(), os.cpus().length > 0);\n\
        fs.writeFileSync('from-node', 'x');\n\
        console.log(new Date(0).getHours(), Intl.DateTimeFormat().resolvedOptions().timeZone);\n\
        console.log(require('child_process').execSync('echo child').toString().trim());\n\
        new (require('worker_threads').Worker)('console.log(\"worker\")', {eval: true});";
    let outcome = fixture.sandbox.run(Command::new(["node", "-e", program]), options()).await.unwrap();
    assert_eq!(output_of(&outcome), "sandbox /home/sandbox /tmp true\n9 Asia/Tokyo\nchild\nworker\n");
}

pub(crate) async fn git_works(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    if !fixture.has("git").await {
        return;
    }
    let script = "git init -q . && git config user.email a@b && git config --global user.name n && echo x > f && \
                  git add f && git commit -qm 'first one' && git log --format=%s%an && git status --porcelain && \
                  git clone -q . /tmp/copy && cat /tmp/copy/f && cd /tmp/copy && echo y >> f && git diff --stat && \
                  git -c user.email=a@b commit -qam second && git push -q origin HEAD:other && \
                  git -C /workspace branch --list other";
    assert_eq!(
        bash(&fixture, script).await,
        "first onen\nx\n f | 1 +\n 1 file changed, 1 insertion(+)\n  other\n"
    );
}

pub(crate) async fn perl_works(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    if !fixture.has("perl").await {
        return;
    }
    let perl = "perl -MPOSIX -MFile::Temp=tempfile -e 'my ($f, $n) = tempfile(); print((getpwuid($<))[0], \" \", \
                strftime(\"%Z\", localtime), \" \", -e $n ? 1 : 0, \"\\n\")'";
    assert_eq!(bash(&fixture, perl).await, "sandbox JST 1\n");
}

/// The environment that ordinary programs expect.
pub(crate) async fn ordinary_programs_are_unaffected(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let script = r#"
import asyncio, concurrent.futures, fcntl, mmap, multiprocessing, os, resource, signal, socket, subprocess, tempfile, threading, time
def square(x): return x * x
async def child():
    process = await asyncio.create_subprocess_exec("echo", "async", stdout=subprocess.PIPE)
    return (await process.communicate())[0]
def main():
    with concurrent.futures.ThreadPoolExecutor(4) as pool: assert list(pool.map(square, range(9)))[8] == 64
    with multiprocessing.get_context("fork").Pool(2) as pool: assert pool.map(square, [3]) == [9]
    assert asyncio.run(child()) == b"async\n"
    niced = subprocess.run(["nice", "-n", "3", "nice"], capture_output=True)
    assert int(niced.stdout) == min(os.nice(0) + 3, 19), niced
    assert subprocess.run(["timeout", "9", "true"]).returncode == 0
    assert subprocess.run(["taskset", "-c", str(min(os.sched_getaffinity(0))), "true"]).returncode == 0
    os.sched_setaffinity(0, os.sched_getaffinity(0)); os.setpriority(os.PRIO_PROCESS, 0, min(os.nice(0) + 1, 19))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); resource.prlimit(0, resource.RLIMIT_CPU)
    resource.prlimit(os.getpid(), resource.RLIMIT_CPU)
    a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
    server = socket.create_server(("127.0.0.1", 0)); socket.create_connection(server.getsockname())
    socket.create_server(("::1", 0), family=socket.AF_INET6) if os.path.exists("/proc/net/if_inet6") else None
    assert socket.getaddrinfo("localhost", 80)
    with tempfile.NamedTemporaryFile() as file: fcntl.flock(file, fcntl.LOCK_EX)
    mmap.mmap(-1, 4096)
    os.memfd_create("m"); os.pidfd_open(os.getpid()); os.mkfifo("/tmp/pipe")
    process = subprocess.Popen(["sleep", "1000"]); process.send_signal(signal.SIGTERM); assert process.wait() == -15
    pid, fd = os.forkpty()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
    print("well")
if __name__ == "__main__": main()
"#;
    fixture.put("honest.py", script).await;
    assert_eq!(bash(&fixture, "python3 honest.py").await, "well\n");
}
