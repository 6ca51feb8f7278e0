//! `#[entry]`: no panic leaves a function that the interpreter calls.
//!
//! A panic that reaches the end of an `extern "C"` function aborts the process. The attribute puts the function's body
//! into a closure and hands that to `ropewalk_capi::entry`, which runs it and makes an exception of a panic:
//!
//! ```ignore
//! #[entry]
//! unsafe extern "C" fn length(object: *mut Object) -> isize { ... }
//! // becomes
//! unsafe extern "C" fn length(object: *mut Object) -> isize {
//!     ::ropewalk_capi::entry::run(move || -> isize { ... })
//! }
//! ```
//!
//! A function that takes a `visitproc` runs inside the garbage collector, which accepts no exception. Its body goes to
//! `ropewalk_capi::entry::run_in_collector`.

#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenStream, TokenTree};

/// Makes an exception of a panic in a function that the interpreter calls. See the crate.
///
/// # Errors
///
/// A compile error on anything but an `extern "C"` function with a body, and for arguments of the attribute.
#[proc_macro_attribute]
pub fn entry(arguments: TokenStream, item: TokenStream) -> TokenStream {
    if !arguments.is_empty() {
        return refused("#[entry] takes no arguments");
    }
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let Some(TokenTree::Group(body)) = tokens.pop().filter(|token| is_group(token, Delimiter::Brace)) else {
        return refused("#[entry] stands before a function with a body");
    };
    let is_extern =
        |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "extern");
    let parameters = tokens.iter().position(|token| is_group(token, Delimiter::Parenthesis));
    let (Some(parameters), true) =
        (parameters_of_function(&tokens, parameters), tokens.iter().any(is_extern))
    else {
        return refused("#[entry] stands before an `extern \"C\"` function");
    };
    let runner = if has_word(&tokens[parameters], "visitproc") { "run_in_collector" } else { "run" };
    let mut closure: Vec<TokenTree> = vec![
        word("move"),
        TokenTree::Punct(Punct::new('|', Spacing::Joint)),
        TokenTree::Punct(Punct::new('|', Spacing::Alone)),
    ];
    // The arrow and the type behind it, up to the body or the bounds.
    let is_bound =
        |token: &&TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "where");
    closure.extend(tokens[parameters + 1..].iter().take_while(|token| !is_bound(token)).cloned());
    closure.push(TokenTree::Group(body.clone()));
    let mut call = path(&["ropewalk_capi", "entry", runner]);
    call.push(TokenTree::Group(Group::new(Delimiter::Parenthesis, closure.into_iter().collect())));
    let mut whole = Group::new(Delimiter::Brace, call.into_iter().collect());
    whole.set_span(body.span());
    tokens.push(TokenTree::Group(whole));
    tokens.into_iter().collect()
}

/// Where the function's parameters stand: the first parentheses behind its name, because `pub(crate)` has some, too.
fn parameters_of_function(tokens: &[TokenTree], first: Option<usize>) -> Option<usize> {
    let name = tokens
        .iter()
        .position(|token| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn"))?;
    (first?..tokens.len()).find(|&at| at > name && is_group(&tokens[at], Delimiter::Parenthesis))
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}

/// Whether the word occurs in the token, at any depth.
fn has_word(token: &TokenTree, wanted: &str) -> bool {
    match token {
        TokenTree::Ident(word) => word.to_string() == wanted,
        TokenTree::Group(group) => group.stream().into_iter().any(|token| has_word(&token, wanted)),
        _ => false,
    }
}

fn word(text: &str) -> TokenTree {
    TokenTree::Ident(Ident::new(text, Span::call_site()))
}

/// A path that begins with a crate's name.
fn path(words: &[&str]) -> Vec<TokenTree> {
    let mut tokens = Vec::new();
    for text in words {
        tokens.push(TokenTree::Punct(Punct::new(':', Spacing::Joint)));
        tokens.push(TokenTree::Punct(Punct::new(':', Spacing::Alone)));
        tokens.push(word(text));
    }
    tokens
}

fn refused(why: &str) -> TokenStream {
    format!("compile_error!({why:?});").parse().unwrap_or_default()
}
