use super::*;
use crate::error::errno::EINVAL;

const ALL: [SocketType; 21] = SocketType::ALL;
const KIND: SocketType = SocketType::Dealer;
const KEY: &[u8; 40] = b"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";

fn set(options: &mut Options, number: i32, value: i32) -> bool {
    match options.set_int(KIND, number, value) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.errno(), EINVAL);
            false
        }
    }
}

fn get(options: &Options, number: i32) -> i32 {
    match options.get(KIND, number).expect("it can be read") {
        Value::Int(value) => value,
        other => panic!("{other:?}"),
    }
}

/// Options of the type `int` that every socket has: the default, what is taken, what is not.
const INTS: &[(i32, i32, &[i32], &[i32])] = &[
    (option::BACKLOG, 100, &[0, 1, i32::MAX], &[-1]),
    (option::CONFLATE, 0, &[1, 0], &[-1, 2]),
    (option::CONNECT_TIMEOUT, 0, &[1, i32::MAX, 0], &[-1]),
    (option::HANDSHAKE_IVL, 30_000, &[0, 1, i32::MAX], &[-1]),
    (option::HEARTBEAT_IVL, 0, &[1, i32::MAX, 0], &[-1]),
    (option::HEARTBEAT_TIMEOUT, -1, &[0, 1, i32::MAX], &[-1]),
    (option::HEARTBEAT_TTL, 0, &[100, 6_553_500, 0], &[-100, 6_553_600, i32::MAX]),
    (option::IMMEDIATE, 0, &[1, 0], &[-1, 2]),
    (option::INVERT_MATCHING, 0, &[1, 0], &[]),
    (option::IPV4ONLY, 1, &[0, 1], &[-1, 2]),
    (option::IPV6, 0, &[1, 0], &[-1, 2]),
    (option::LINGER, -1, &[0, 1, i32::MAX, -1], &[-2]),
    (option::LOOPBACK_FASTPATH, 0, &[1, 0], &[]),
    (option::MULTICAST_HOPS, 1, &[7, 1], &[0, -1]),
    (option::MULTICAST_LOOP, 1, &[0, 1], &[]),
    (option::MULTICAST_MAXTPDU, 1500, &[1, i32::MAX], &[0, -1]),
    (option::PRIORITY, 0, &[6, 0], &[-1]),
    (option::RATE, 100, &[1, i32::MAX], &[0, -1]),
    (option::RECOVERY_IVL, 10_000, &[0, 1, i32::MAX], &[-1]),
    (option::RCVBUF, -1, &[0, 1, i32::MAX, -1], &[-2]),
    (option::RCVHWM, 1000, &[0, 1, i32::MAX], &[-1]),
    (option::RCVTIMEO, -1, &[0, 1, i32::MAX, -1], &[-2]),
    (option::RECONNECT_IVL, 100, &[0, 1, i32::MAX, -1], &[-2]),
    (option::RECONNECT_IVL_MAX, 0, &[1, i32::MAX, 0], &[-1]),
    (option::RECONNECT_STOP, 0, &[7, -1, 0], &[]),
    (option::SNDBUF, -1, &[0, 1, i32::MAX, -1], &[-2]),
    (option::SNDHWM, 1000, &[0, 1, i32::MAX], &[-1]),
    (option::SNDTIMEO, -1, &[0, 1, i32::MAX, -1], &[-2]),
    (option::TCP_KEEPALIVE, -1, &[0, 1, -1], &[-2, 2]),
    (option::TCP_KEEPALIVE_CNT, -1, &[0, 1, -1], &[-2]),
    (option::TCP_KEEPALIVE_IDLE, -1, &[0, 1, -1], &[-2]),
    (option::TCP_KEEPALIVE_INTVL, -1, &[0, 1, -1], &[-2]),
    (option::TCP_MAXRT, 0, &[1, i32::MAX, 0], &[-1]),
    (option::TOS, 0, &[0x28, 0], &[-1]),
    (option::USE_FD, -1, &[0, 7, -1], &[-2]),
    (option::ZAP_ENFORCE_DOMAIN, 0, &[1, 0], &[]),
];

#[test]
fn a_number_is_read_as_it_was_set_and_refused_out_of_its_range() {
    for &(number, default, taken, refused) in INTS {
        let name = definition(number).expect("a row").name;
        let mut options = Options::default();
        assert_eq!(get(&options, number), default, "{name}");
        for &value in taken {
            assert!(set(&mut options, number, value), "{name} = {value}");
            assert_eq!(get(&options, number), value, "{name}");
        }
        for &value in refused {
            assert!(!set(&mut options, number, value), "{name} = {value}");
        }
        for length in [0, 1, 3, 5, 8] {
            let error = options.set(KIND, number, &[0; 8][..length]).expect_err(name);
            assert_eq!(error.errno(), EINVAL, "{name} of {length} bytes");
        }
        assert_eq!(taken.last().copied(), Some(get(&options, number)), "a refusal changes nothing: {name}");
    }
    let mut options = Options::default();
    assert!(set(&mut options, option::HEARTBEAT_TTL, 199));
    assert_eq!(get(&options, option::HEARTBEAT_TTL), 100, "tenths of a second");
    assert!(set(&mut options, option::INVERT_MATCHING, -3));
    assert_eq!(get(&options, option::INVERT_MATCHING), 1);
}

#[test]
fn wide_numbers_have_eight_bytes() {
    let mut options = Options::default();
    assert_eq!(options.get(KIND, option::AFFINITY), Ok(Value::Uint64(0)));
    assert_eq!(options.get(KIND, option::MAXMSGSIZE), Ok(Value::Int64(-1)));
    options.set(KIND, option::AFFINITY, &u64::MAX.to_ne_bytes()).expect("taken");
    options.set(KIND, option::MAXMSGSIZE, &i64::MAX.to_ne_bytes()).expect("taken");
    assert_eq!((options.affinity, options.maxmsgsize), (u64::MAX, Some(i64::MAX.unsigned_abs())));
    options.set(KIND, option::MAXMSGSIZE, &(-1_i64).to_ne_bytes()).expect("taken");
    assert_eq!(options.maxmsgsize, None);
    assert!(!set(&mut options, option::AFFINITY, 1) && !set(&mut options, option::MAXMSGSIZE, 1));
    for number in [option::SNDHWM_BYTES, option::RCVHWM_BYTES] {
        assert_eq!(options.get(KIND, number), Ok(Value::Int64(0)));
        options.set(KIND, number, &(1_i64 << 40).to_ne_bytes()).expect("taken");
        assert_eq!(options.get(KIND, number), Ok(Value::Int64(1 << 40)));
        assert!(set(&mut options, number, 5) && !set(&mut options, number, -1));
        assert_eq!(options.get(KIND, number), Ok(Value::Int64(5)));
        assert!(options.set(KIND, number, &(-1_i64).to_ne_bytes()).is_err());
    }
}

#[test]
fn an_option_of_one_pattern_is_refused_by_the_others() {
    use SocketType::*;
    let table: &[(i32, &[SocketType])] = &[
        (option::CONNECT_ROUTING_ID, &[Router, Stream]),
        (option::DISCONNECT_MSG, &[Router, Server, Peer]),
        (option::HELLO_MSG, &[Dealer, Router, Server, Client, Peer]),
        (option::HICCUP_MSG, &[Dealer, Client, Peer]),
        (option::ONLY_FIRST_SUBSCRIBE, &[Pub, XPub, XSub]),
        (option::PROBE_ROUTER, &[Req, Dealer, Router]),
        (option::REQ_CORRELATE, &[Req]),
        (option::REQ_RELAXED, &[Req]),
        (option::ROUTER_HANDOVER, &[Router]),
        (option::ROUTER_MANDATORY, &[Router]),
        (option::ROUTER_NOTIFY, &[Router]),
        (option::ROUTER_RAW, &[Router]),
        (option::STREAM_NOTIFY, &[Stream]),
        (option::XPUB_MANUAL, &[XPub]),
        (option::XPUB_MANUAL_LAST_VALUE, &[XPub]),
        (option::XPUB_NODROP, &[Pub, XPub, Radio]),
        (option::XPUB_VERBOSE, &[Pub, XPub]),
        (option::XPUB_VERBOSER, &[Pub, XPub]),
        (option::XPUB_WELCOME_MSG, &[Pub, XPub]),
        (option::XSUB_VERBOSE_UNSUBSCRIBE, &[XSub]),
    ];
    for &(number, kinds) in table {
        for kind in ALL {
            let mut options = Options::default();
            let untouched = options.clone();
            let name = definition(number).expect("a row").name;
            // Off, where that is not what it is anyway.
            let value = i32::from(number != option::STREAM_NOTIFY);
            let answer = options.set_int(kind, number, value);
            assert_eq!(answer.is_ok(), kinds.contains(&kind), "{name} on {kind:?}");
            assert_eq!(options != untouched, kinds.contains(&kind), "{name} on {kind:?} is remembered");
        }
    }
}

#[test]
fn the_options_of_xpub_that_say_the_same_agree() {
    let mut options = Options::default();
    let mut set = |number, value| {
        options.set_int(SocketType::XPub, number, value).expect("taken");
        (options.xpub_verbose, options.xpub_verboser)
    };
    assert_eq!(set(option::XPUB_VERBOSER, 1), (true, true));
    assert_eq!(set(option::XPUB_VERBOSE, 1), (true, false));
    assert_eq!(set(option::XPUB_VERBOSER, 0), (false, false));
    set(option::XPUB_MANUAL_LAST_VALUE, 1);
    assert!(options.xpub_manual && options.xpub_manual_last_value);
    options.set_int(SocketType::Router, option::ROUTER_NOTIFY, 3).expect("taken");
    assert!(options.set_int(SocketType::Router, option::ROUTER_NOTIFY, 4).is_err());
    assert_eq!(options.get(SocketType::Router, option::ROUTER_NOTIFY), Ok(Value::Int(3)));
}

#[test]
fn names_and_messages_have_their_lengths() {
    let mut options = Options::default();
    for number in [option::ROUTING_ID, option::ZAP_DOMAIN] {
        options.set(KIND, number, b"n\0ame").expect("taken");
        assert_eq!(options.get(KIND, number), Ok(Value::Bytes(b"n\0ame".to_vec())));
        assert!(options.set(KIND, number, b"").is_err() && options.set(KIND, number, &[b'a'; 256]).is_err());
        options.set(KIND, number, &[b'a'; 255]).expect("taken");
    }
    options.set(KIND, option::BINDTODEVICE, b"lo").expect("taken");
    assert_eq!(options.tcp().device, b"lo");
    assert!(options.set(KIND, option::BINDTODEVICE, &[b'a'; 17]).is_err());
    options.set(KIND, option::BINDTODEVICE, b"").expect("taken");
    assert!(options.bindtodevice.is_empty());
    options.set(KIND, option::HELLO_MSG, &[7; 1000]).expect("taken");
    assert_eq!(options.hello_msg, Some(vec![7; 1000]));
    options.set(KIND, option::HELLO_MSG, b"").expect("taken");
    assert_eq!(options.hello_msg, None);
}

#[test]
fn properties_are_named_with_an_x_and_stay() {
    let mut options = Options::default();
    for value in ["X-key:value", "X-two:a:b", "X-key:other"] {
        options.set(KIND, option::METADATA, value.as_bytes()).expect(value);
    }
    let expected = [("X-key".to_owned(), b"value".to_vec()), ("X-two".to_owned(), b"a:b".to_vec())];
    assert_eq!(options.metadata, expected);
    let long = format!("X-{}:v", "k".repeat(254));
    for value in ["", "X-key", "X-key:", ":v", "key:v", "x-key:v", "X-\u{fffd}", &long] {
        assert!(options.set(KIND, option::METADATA, value.as_bytes()).is_err(), "{value}");
    }
    assert!(options.set(KIND, option::METADATA, b"X-\xff:v").is_err());
    assert!(options.get(KIND, option::METADATA).is_err());
}

#[test]
fn the_last_security_option_decides_the_mechanism() {
    let mut options = Options::default();
    let state = |options: &Options| {
        (options.mechanism, get(options, option::PLAIN_SERVER), get(options, option::CURVE_SERVER))
    };
    assert_eq!(state(&options), (Mechanism::Null, 0, 0));
    assert!(set(&mut options, option::PLAIN_SERVER, 1) && !set(&mut options, option::PLAIN_SERVER, 2));
    assert_eq!(state(&options), (Mechanism::Plain, 1, 0));
    options.set(KIND, option::CURVE_SECRETKEY, &[1; 32]).expect("taken");
    assert_eq!(state(&options), (Mechanism::Curve, 0, 1), "a key changes the mechanism, not the role");
    options.set(KIND, option::CURVE_SERVERKEY, &[2; 32]).expect("taken");
    assert_eq!(state(&options), (Mechanism::Curve, 0, 0), "a client has a server key");
    assert!(set(&mut options, option::CURVE_SERVER, 1));
    assert_eq!(state(&options), (Mechanism::Curve, 0, 1));
    options.set(KIND, option::PLAIN_USERNAME, b"me").expect("taken");
    options.set(KIND, option::PLAIN_PASSWORD, b"secret").expect("taken");
    assert_eq!(state(&options), (Mechanism::Plain, 0, 0));
    assert_eq!(options.get(KIND, option::PLAIN_USERNAME), Ok(Value::Bytes(b"me".to_vec())));
    assert_eq!(options.get(KIND, option::MECHANISM), Ok(Value::Int(1)));
    assert!(options.set(KIND, option::PLAIN_PASSWORD, &[b'a'; 256]).is_err());
    assert!(!format!("{options:?}").contains("secret"));
    options.set(KIND, option::PLAIN_USERNAME, b"").expect("taken");
    assert_eq!((state(&options), options.plain_username), ((Mechanism::Null, 0, 0), None));
}

#[test]
fn keys_are_bytes_or_text() {
    let mut options = Options::default();
    let zeros = "0".repeat(40);
    for number in [option::CURVE_PUBLICKEY, option::CURVE_SECRETKEY, option::CURVE_SERVERKEY] {
        assert_eq!(options.get(KIND, number), Ok(Value::Bytes(vec![0; 32])));
        assert_eq!(options.get_z85(KIND, number), Ok(zeros.clone()));
        options.set(KIND, number, KEY).expect("text");
        let Ok(Value::Bytes(raw)) = options.get(KIND, number) else { panic!("bytes") };
        assert_eq!(&raw[..4], [0x54, 0xfc, 0xba, 0x24]);
        options.set(KIND, number, &[0; 32]).expect("bytes");
        options.set(KIND, number, &[KEY.as_slice(), b"\0"].concat()).expect("text with a zero");
        assert_eq!(options.get(KIND, number), Ok(Value::Bytes(raw)));
        assert_eq!(options.get_z85(KIND, number).map(String::into_bytes), Ok(KEY.to_vec()));
        for wrong in [&b""[..], &[0; 31], &[0; 33], &[b'~'; 40], &[b'#'; 40], &[b'0'; 41], &[0xff; 40]] {
            assert!(options.set(KIND, number, wrong).is_err(), "{wrong:?}");
        }
    }
    assert!(options.get_z85(KIND, option::ROUTING_ID).is_err());
}

#[test]
fn what_is_not_supported_or_not_ours_is_refused_and_says_so() {
    let mut options = Options::default();
    let numbers: Vec<i32> = (-1..200).filter(|&number| kept(number).is_none()).collect();
    for kind in ALL {
        for &number in &numbers {
            for value in [&b""[..], &[0; 4], &[0; 8], b"name"] {
                assert_eq!(options.set(kind, number, value).expect_err("refused").errno(), EINVAL);
            }
            assert_eq!(options.get(kind, number).expect_err("refused").errno(), EINVAL);
        }
    }
    assert_eq!(options, Options::default());
    let said = |number| Options::default().set_int(KIND, number, 1).expect_err("refused").to_string();
    assert_eq!(said(9999), "there is no option 9999");
    assert_eq!(said(option::SOCKS_PROXY), "SOCKS_PROXY is not supported");
    assert!(said(option::SUBSCRIBE).contains("DEALER"));
    assert!(said(option::XPUB_MANUAL).contains("XPUB_MANUAL cannot be set on a DEALER socket"));
    assert!(said(option::BLOCKY).contains("context"));
    assert!(said(option::METADATA).contains("it takes `X-name:value`"));
    assert!(said(option::AFFINITY).contains("it takes 64 bits (an int64)"));
}

fn kept(number: i32) -> Option<Definition> {
    definition(number).filter(|definition| matches!(definition.support, Support::Kept { .. }))
}

#[test]
fn an_option_is_taken_and_read_by_the_sockets_that_the_table_names() {
    let values =
        [&1_i32.to_ne_bytes()[..], &0_i32.to_ne_bytes(), &0_i64.to_ne_bytes(), b"X-a:b", KEY, b"name"];
    for definition in NUMBERS.iter().copied().filter_map(kept) {
        let Definition { name, number, access, sockets, .. } = definition;
        for kind in ALL {
            let takes = |value: &&[u8]| Options::default().set(kind, number, value).is_ok();
            let is_its = sockets.contains(&kind);
            assert_eq!(values.iter().any(takes), is_its && access.writes(), "{name} set on {kind}");
            let reads = Options::default().get(kind, number).is_ok();
            assert_eq!(reads, is_its && access.reads(), "{name} read on {kind}");
        }
    }
}

#[test]
fn every_row_has_a_name_and_a_number_of_its_own_and_a_sentence() {
    let mut seen = Vec::new();
    for &number in NUMBERS {
        let row = definition(number).expect("a row");
        assert_eq!(row.number, number);
        assert!(row.about.ends_with('.') && !row.about.contains('\n'), "{}", row.name);
        seen.extend(row.aliases.iter().copied().chain([row.name]));
    }
    let names: std::collections::BTreeSet<&str> = seen.iter().copied().collect();
    assert_eq!(names.len(), seen.len());
    assert!(definition(9999).is_none() && value_type(9999).is_none());
}

#[test]
fn what_follows_from_options() {
    let mut options = Options::default();
    assert_eq!(options.heartbeat_patience(), None);
    options.heartbeat_ivl = Some(Duration::from_millis(50));
    assert_eq!(options.heartbeat_patience(), options.heartbeat_ivl);
    options.heartbeat_timeout = Some(Duration::ZERO);
    assert_eq!(options.heartbeat_patience(), None);
    options.conflate = true;
    assert!(options.conflates(SocketType::Pull) && !options.conflates(SocketType::Router));
    assert_eq!(Options::default().tcp(), TcpOptions::default());
    options.set_int(KIND, option::TCP_KEEPALIVE, 0).expect("taken");
    options.set_int(KIND, option::TCP_MAXRT, 7).expect("taken");
    let tcp = options.tcp();
    assert_eq!((tcp.keepalive, tcp.user_timeout), (Some(false), Some(Duration::from_millis(7))));
}
