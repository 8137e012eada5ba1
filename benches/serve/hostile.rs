//! Slow connections, and a body without end.

use std::time::{Duration, Instant};

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::harness::Result;
use crate::http_client::{Connection, Request, read_head};
use crate::requests::each;
use crate::setup::{Objects, Setup, message};
use crate::times::header;

const SLOW: usize = 1_000;
const LISTS: usize = 4_000;
const CLIENTS: usize = 4;
const GIGABYTE: usize = 1 << 30;

pub(crate) async fn measure() -> Result<()> {
    let setup = Setup::new()?;
    let server = setup.server().await?;
    let objects = Objects::create(server.address).await?;
    let mut connection = Connection::open(server.address).await?;
    let session = objects.session(&mut connection).await?;
    connection.answer(&message(&session, "What is two and two?")).await?;
    let path = format!("/v1/sessions/{session}/events");
    header();
    let mut measured = Vec::new();
    let mut dripping = JoinSet::new();
    for name in ["a list", "a list beside 1,000 slow clients"] {
        let path = path.clone();
        let times = each(CLIENTS, LISTS, server.address, move |_| Request::get(path.clone())).await?;
        times.print(name);
        measured.push(times.percentile(99));
        if dripping.is_empty() {
            let memory = server.memory()?;
            for number in 0..SLOW {
                dripping.spawn(drip(TcpStream::connect(server.address).await?, number));
            }
            tokio::time::sleep(Duration::from_secs(3)).await;
            let each = server.memory()?.saturating_sub(memory) as f64 / SLOW as f64 / 1024.0;
            println!("RESULT goal=serve case=memory-of-a-slow-connection ours={each:.1} unit=KB");
        }
    }
    let [alone, beside] = measured[..] else { return Err("two were measured".into()) };
    println!(
        "RESULT goal=serve case=list-p99-beside-slow-connections ours={beside:.2} other={alone:.2} unit=ms ratio={:.2}",
        beside / alone
    );
    dripping.shutdown().await;

    let before = server.peak_memory()?;
    let started = Instant::now();
    let mut stream = TcpStream::connect(server.address).await?;
    let head = format!("POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {GIGABYTE}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let (reader, mut writer) = stream.into_split();
    let mut sending = JoinSet::new();
    sending.spawn(async move {
        let (chunk, mut sent) = (vec![b' '; 64 << 10], 0);
        while sent < GIGABYTE && writer.write_all(&chunk).await.is_ok() {
            sent += chunk.len();
        }
        // The connection stays open for the answer.
        (writer, sent)
    });
    let mut reader = BufReader::new(reader);
    let answer = read_head(&mut reader).await?;
    let took = started.elapsed();
    if answer.status != 413 {
        return Err(format!("a body of a gigabyte was answered with {}", answer.status).into());
    }
    let grown = server.peak_memory()?.saturating_sub(before) as f64 / f64::from(1 << 20);
    println!("RESULT goal=serve case=gigabyte-refused ours={:.0} unit=ms", took.as_secs_f64() * 1000.0);
    println!("RESULT goal=serve case=gigabyte-memory ours={grown:.1} unit=MB");
    drop(reader);
    sending.shutdown().await;
    server.stop().await
}

/// Sends a byte a second: of a head, or of a body.
async fn drip(mut stream: TcpStream, number: usize) -> Result<()> {
    if number % 2 == 1 {
        stream
            .write_all(b"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n")
            .await?;
    } else {
        stream.write_all(b"GET /").await?;
    }
    loop {
        stream.write_all(b"a").await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
