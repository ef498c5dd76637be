//! Runs the program `uroce` as a user would, with nothing of ours in its environment.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The longest that a program may take on a busy machine before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program with arguments, its input and environment empty of what could disturb.
pub fn uroce(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uroce"));
    command.args(arguments).stdin(Stdio::null()).env_remove("CARGO_MANIFEST_DIR");
    for variable in std::env::vars_os().map(|(name, _)| name) {
        let name = variable.to_string_lossy().into_owned();
        if name.starts_with("UROCE_") || name == "NO_COLOR" {
            command.env_remove(name);
        }
    }
    command
}

/// A running program, killed when dropped.
pub struct Running {
    child: Child,
    arguments: String,
}

impl Running {
    /// Starts a program with its output caught.
    pub fn start(mut command: Command) -> Self {
        let arguments = format!("{command:?}");
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Self { child: child.expect("the program can be started"), arguments }
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the program has written a line with these words to standard output, and gives
    /// that line. Panics if the program ends without.
    pub fn wait_for_line(&mut self, words: &str) -> String {
        let stdout = self.child.stdout.as_mut().expect("the output is still caught");
        // Byte by byte: what follows the line is still to be read by `finish`.
        let mut line = Vec::new();
        let mut byte = [0];
        while stdout.read(&mut byte).expect("a pipe can be read") == 1 {
            if byte[0] != b'\n' {
                line.push(byte[0]);
                continue;
            }
            let text = String::from_utf8_lossy(&line).into_owned();
            if text.contains(words) {
                return text;
            }
            line.clear();
        }
        panic!("{} ended without `{words}`", self.arguments);
    }

    /// Waits for the end, and gives status and output. Panics if it does not come.
    pub fn finish(mut self) -> Output {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let (sender, receiver) = std::sync::mpsc::channel();
        let readers = [read_all(stdout), read_all(stderr)];
        std::thread::spawn(move || {
            let [stdout, stderr] = readers.map(|reader| reader.join().unwrap_or_default());
            let _ = sender.send((stdout, stderr));
        });
        let (stdout, stderr) = receiver
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("{} does not end", self.arguments));
        let status = self.child.wait().expect("the program is our child");
        Output { status, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has usually ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Runs the program to its end.
pub fn run(arguments: &[&str]) -> Output {
    Running::start(uroce(arguments)).finish()
}

/// What a program wrote to standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a program wrote to standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The exit status; panics with the output if there was a signal.
pub fn status(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("killed: {}", stderr(output)))
}

/// Panics unless the program succeeded and said nothing on standard error.
pub fn assert_success(output: &Output) {
    assert_eq!(status(output), 0, "{}{}", stdout(output), stderr(output));
    assert_eq!(stderr(output), "");
}

/// The JSON object on standard output.
pub fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", stdout(output), stderr(output)))
}

/// A folder of this test's own, removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it.
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("uroce-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a new folder in the temporary one");
        Self(path)
    }

    /// A path in it, as text.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the temporary folder has a plain name").to_owned()
    }

    /// Names of the files in it.
    pub fn names(&self) -> Vec<String> {
        names_in(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
