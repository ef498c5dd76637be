//! Interfaces that a test may use: `lo`, or a veth pair in a namespace that ends with the thread.

use std::process::Command;
use std::sync::Mutex;

static MADE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Panics unless `name` is `lo` or was made by this process: no test touches the machine's own
/// network.
pub fn assert_ours(name: &str) {
    let made = MADE.lock().expect("no test panics while it holds the list");
    assert!(is_ours(name, &made), "{name} is neither lo nor made by this test");
}

/// Whether `name` is `lo` or one of `made`.
pub fn is_ours(name: &str, made: &[String]) -> bool {
    name == "lo" || made.iter().any(|own| own == name)
}

/// Whether this process may make network namespaces.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Moves the calling thread into an empty network namespace, which ends with it, and makes a veth
/// pair there: `inside` with `address`, and `outside` without any.
///
/// # Errors
/// What could not be done, for the skip line.
pub fn veth_in_new_namespace(
    inside: &str,
    outside: &str,
    address: &str,
    mtu: usize,
) -> Result<(), String> {
    enter_new_namespace()?;
    let mtu = mtu.to_string();
    ip(&["link", "set", "lo", "up"])?;
    ip(&["link", "add", inside, "mtu", &mtu, "type", "veth", "peer", "name", outside])?;
    ip(&["link", "set", outside, "mtu", &mtu, "up"])?;
    ip(&["address", "add", address, "dev", inside])?;
    ip(&["link", "set", inside, "up"])?;
    let mut made = MADE.lock().map_err(|error| error.to_string())?;
    made.extend([inside.to_owned(), outside.to_owned()]);
    Ok(())
}

/// Runs `ip` in the calling thread's namespace.
///
/// # Errors
/// Its error output, or that it is not installed.
pub fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|e| format!("ip: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

/// Where the calling thread's network namespace can be named from another one.
pub fn own_namespace() -> String {
    let thread = std::fs::read_link("/proc/thread-self").expect("proc is mounted");
    format!("/proc/{}/ns/net", thread.display())
}

/// Moves a link that this process made into the network namespace that `path` names.
///
/// # Errors
/// As [`ip`].
pub fn move_link(name: &str, path: &str) -> Result<(), String> {
    assert_ours(name);
    ip(&["link", "set", name, "netns", path])
}

/// Gives a link that this process made one more address, and raises it and `lo`.
///
/// # Errors
/// As [`ip`].
pub fn raise(name: &str, address: &str) -> Result<(), String> {
    assert_ours(name);
    ip(&["link", "set", "lo", "up"])?;
    // An IPv6 address is usable at once only without the search for another owner.
    let unique: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
    ip(&[&["address", "add", address, "dev", name], unique].concat())?;
    ip(&["link", "set", name, "up"])
}

/// Moves the calling thread into an empty network namespace, which ends with it.
///
/// # Errors
/// What the kernel answers.
pub fn enter_new_namespace() -> Result<(), String> {
    #[allow(unsafe_code)]
    // SAFETY: takes no pointers, and concerns the calling thread only.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().to_string()) }
}
