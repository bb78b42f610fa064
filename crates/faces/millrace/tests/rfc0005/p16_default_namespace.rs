//! 16. A session without a namespace uses the configured default.

use millrace::{Config, Namespace, Session};

use crate::words::*;

#[test]
fn the_default_namespace_is_default_unless_configured() {
    let plain = Session::open("memory:").unwrap();
    assert_eq!(plain.namespace_name().as_str(), "default");
    let config = Config { default_namespace: Namespace::new("shop").unwrap(), ..Config::default() };
    let configured = plain.to_builder().config(config.clone()).open().unwrap();
    assert_eq!(configured.namespace_name().as_str(), "shop");
    let explicit = plain.to_builder().namespace("orders").config(config).open().unwrap();
    assert_eq!(explicit.namespace_name().as_str(), "orders");
    configured.ensure(paid(1)).unwrap();
    configured.commit().unwrap();
    assert_eq!(plain.get::<Payment>(1_u64).unwrap(), None);
    assert!(plain.to_builder().namespace("shop").open().unwrap().get::<Payment>(1_u64).unwrap().is_some());
    let bad = plain.to_builder().namespace("a/b").open().unwrap_err().to_string();
    assert!(bad.contains("only A-Z"), "{bad}");
}
