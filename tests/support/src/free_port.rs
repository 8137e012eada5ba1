//! [`free_port`]: a port for a program that a test starts.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports below those that the system gives to whoever asks for any.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port of `127.0.0.1` at which nobody listens, and which no other test gets: neither from here nor from the system.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test programs that run at the same time begin at different ports.
    let first = (std::process::id() % u32::from(COUNT)) as u16;
    loop {
        let number = u32::from(first) * 64 + u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + (number % u32::from(COUNT)) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
