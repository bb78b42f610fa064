//! A leader that a server names is data from the network: where the client follows it, and where its token may go.

use crate::fake::{Conn, Fake, options_for};
use millrace_client::{Client, ClientOptions, FollowLeader, NewMessage};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

const TOKEN: &str = "secret";

/// Publishes an event over this connection, so that it is known to be the one in use.
async fn used(client: &Client, conn: &mut Conn) {
    let receipt = client.publish_nowait("a", NewMessage::json(&1).unwrap()).await.unwrap();
    let publish = conn.expect("PUBLISH").await;
    conn.confirm(&publish, 1).await;
    receipt.await.unwrap();
}

fn with_token(mut options: ClientOptions) -> ClientOptions {
    options.token = Some(TOKEN.into());
    options
}

#[tokio::test]
async fn without_a_token_a_leader_outside_the_list_is_followed() {
    let (listed, leader) = (Fake::start().await, Fake::start().await);
    let (client, mut conn) = tokio::join!(Client::connect(listed.options()), listed.accept());
    let client = client.unwrap();
    conn.moved(Some(&leader.url())).await;
    let mut conn = leader.accept().await;
    used(&client, &mut conn).await;
    assert_eq!(client.url(), Some(leader.url()));
    // When the leader is gone, the list is where the client looks.
    drop((conn, leader));
    used(&client, &mut listed.accept().await).await;
}

#[tokio::test]
async fn the_token_goes_only_to_servers_of_the_list() {
    let (first, second, other) = (Fake::start().await, Fake::start().await, Fake::start().await);
    let options = with_token(options_for(&[&first, &second]));
    let (client, mut conn) = tokio::join!(Client::connect(options), first.accept());
    let client = client.unwrap();
    conn.moved(Some(&other.url())).await;
    let mut conn = second.accept().await;
    assert_eq!(conn.authorization.as_deref(), Some("Bearer secret"));
    used(&client, &mut conn).await;
    assert!(other.is_untouched());
    // A leader of the list gets it, of course.
    conn.moved(Some(&first.url())).await;
    let mut conn = first.accept().await;
    assert_eq!(conn.authorization.as_deref(), Some("Bearer secret"));
    used(&client, &mut conn).await;
}

#[tokio::test]
async fn the_user_may_let_the_token_go_to_every_leader_or_follow_none() {
    let (listed, other) = (Fake::start().await, Fake::start().await);
    let mut options = with_token(listed.options());
    options.follow_leader = FollowLeader::Always;
    let (client, mut conn) = tokio::join!(Client::connect(options), listed.accept());
    conn.moved(Some(&other.url())).await;
    let mut conn = other.accept().await;
    assert_eq!(conn.authorization.as_deref(), Some("Bearer secret"));
    used(&client.unwrap(), &mut conn).await;

    let mut options = listed.options();
    options.follow_leader = FollowLeader::Listed;
    let (client, mut conn) = tokio::join!(Client::connect(options), listed.accept());
    conn.moved(Some(&other.url())).await;
    used(&client.unwrap(), &mut listed.accept().await).await;
    assert!(other.is_untouched());
}

#[tokio::test]
async fn a_leader_that_is_no_url_is_passed_over() {
    let (first, second) = (Fake::start().await, Fake::start().await);
    let (client, mut conn) = tokio::join!(Client::connect(options_for(&[&first, &second])), first.accept());
    let client = client.unwrap();
    let (mut asked, mut next) = (&first, &second);
    let long = format!("ws://{}/", "a".repeat(5000));
    for leader in ["", "nonsense", "file:///etc/passwd", "ws://", "ws://a b/", "ws://x/\r\ny: z", &long] {
        // A frame with any text, although no close frame could carry it.
        let error = serde_json::json!({"type": "ERROR", "code": "moved", "message": "m", "leader": leader});
        used(&client, &mut conn).await;
        conn.send(error).await;
        conn = next.accept().await;
        std::mem::swap(&mut asked, &mut next);
    }
    conn.send(serde_json::json!({"type": "ERROR", "code": "moved", "message": "m", "leader": {"a": 1}}))
        .await;
    used(&client, &mut next.accept().await).await;
}

/// Two servers that name each other, and one that names itself: each is asked once in a round.
#[tokio::test]
async fn servers_that_name_each_other_are_asked_in_turn() {
    let (first, second) = (Fake::start().await, Fake::start().await);
    let (client, conn) = tokio::join!(Client::connect(first.options()), first.accept());
    let (client, mut conn) = (client.unwrap(), conn);
    conn.moved(Some(&second.url())).await;
    for _ in 0..3 {
        drop(second.accept_and_move(Some(&first.url())).await);
        drop(first.accept_and_move(Some(&second.url())).await);
    }
    drop(second.accept_and_move(Some(&second.url())).await);
    used(&client, &mut first.accept().await).await;
}

/// Returns an acceptor for 127.0.0.1, and the file with its authority.
fn certified(folder: &tempfile::TempDir) -> (TlsAcceptor, PathBuf) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let cert = params.signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(millrace_client::crypto_provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, authority.pem()).unwrap();
    (TlsAcceptor::from(Arc::new(config)), file)
}

#[tokio::test]
async fn from_tls_only_a_leader_with_tls_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (acceptor, authorities) = certified(&folder);
    let (first, second) = (Fake::with_tls(acceptor.clone()).await, Fake::with_tls(acceptor.clone()).await);
    let (plain, unlisted) = (Fake::start().await, Fake::with_tls(acceptor).await);
    let mut options = with_token(options_for(&[&first, &second]));
    options.tls_ca = Some(authorities);
    options.follow_leader = FollowLeader::Always;
    let (client, mut conn) = tokio::join!(Client::connect(options), first.accept());
    let client = client.unwrap();
    conn.moved(Some(&plain.url())).await;
    let mut conn = second.accept().await;
    used(&client, &mut conn).await;
    assert!(plain.is_untouched());
    // The other server has proved who it is, and so does the leader that it names.
    conn.moved(Some(&unlisted.url())).await;
    let mut conn = unlisted.accept().await;
    assert_eq!(conn.authorization.as_deref(), Some("Bearer secret"));
    used(&client, &mut conn).await;
    // A server of the list is used under the URL of the list, whatever scheme it is named with.
    conn.moved(Some(&first.url().replace("wss://", "ws://"))).await;
    used(&client, &mut first.accept().await).await;
}
