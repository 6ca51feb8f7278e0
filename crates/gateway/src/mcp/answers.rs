//! Results and failures in MCP's words.

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::value::RawValue;

use super::listing::{Shape, Shown};
use crate::call::{Answer, Items};
use crate::failed::{Code, Failed};
use crate::http::text_of;

/// Violations that a message lists. A model that has set these right sees the next ones.
const MOST_LISTED: usize = 20;

/// What a call of a tool gives.
#[derive(Debug)]
pub(super) struct Said {
    text: String,
    /// A JSON object.
    structured: Option<Box<RawValue>>,
    is_error: bool,
}

impl Said {
    /// The result of a call.
    pub(super) fn result(shown: &Shown, answer: &Answer) -> Self {
        let bytes = text_of(answer);
        let Ok(json) = std::str::from_utf8(&bytes) else {
            return Self::failed(&Failed::new(
                Code::Internal,
                "the tool's worker has sent a result that is no text",
            ));
        };
        let structured = match shown.shape {
            Shape::Object => Some(json.to_owned()),
            Shape::Unknown => json.trim_start().starts_with('{').then(|| json.to_owned()),
            Shape::Wrapped => Some(format!("{{\"result\":{json}}}")),
        };
        let Ok(structured) = structured.map(RawValue::from_string).transpose() else {
            return Self::failed(&Failed::new(
                Code::Internal,
                "the tool's worker has sent a result that is no JSON",
            ));
        };
        // A text is easier to read without its quotes and escapes.
        let text = json.starts_with('"').then(|| serde_json::from_str(json).ok()).flatten();
        Self { text: text.unwrap_or_else(|| json.to_owned()), structured, is_error: false }
    }

    /// Why there is no result, in words by which a model can do better.
    pub(super) fn failed(failed: &Failed) -> Self {
        let mut text = failed.message.to_string();
        let described = failed.violations.iter().map(|one| match &*one.field {
            "" => one.description.clone(),
            field => format!("{field}: {}", one.description),
        });
        // The message has the first ones, unless the tool itself has written it.
        let mut left = described.filter(|line| !failed.message.contains(&**line));
        for line in left.by_ref().take(MOST_LISTED) {
            text.push_str("\n- ");
            text.push_str(&line);
        }
        let left = left.count();
        if left > 0 {
            text.push_str(&format!("\n- and {left} more"));
        }
        Self { text, structured: None, is_error: true }
    }

    /// The `result` of the response, in JSON; `modern` from revision 2026-07-28 on.
    pub(super) fn write(&self, modern: bool) -> serde_json::Result<Vec<u8>> {
        #[derive(serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Content<'a> {
            r#type: &'a str,
            text: &'a str,
        }
        #[derive(serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Written<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            result_type: Option<&'a str>,
            content: [Content<'a>; 1],
            #[serde(skip_serializing_if = "Option::is_none")]
            structured_content: Option<&'a RawValue>,
            is_error: bool,
        }
        serde_json::to_vec(&Written {
            result_type: modern.then_some("complete"),
            content: [Content { r#type: "text", text: &self.text }],
            structured_content: self.structured.as_deref(),
            is_error: self.is_error,
        })
    }
}

impl From<Said> for CallToolResult {
    fn from(said: Said) -> Self {
        let content = vec![ContentBlock::text(said.text)];
        if said.is_error {
            return Self::error(content);
        }
        let mut made = Self::success(content);
        made.structured_content = said.structured.and_then(|json| serde_json::from_str(json.get()).ok());
        made
    }
}

/// The items of a stream as one JSON array: MCP has no results that come in parts.
pub(super) async fn collected(mut items: Items, largest: usize) -> Result<Bytes, Failed> {
    let mut all = BytesMut::from(&b"["[..]);
    while let Some(item) = items.next().await {
        if all.len() > 1 {
            all.extend_from_slice(b",");
        }
        all.extend_from_slice(&text_of(&item?));
        if all.len() > largest {
            let text = format!(
                "the items of the stream are larger than {largest} bytes, which is the server's limit over MCP: \
                 ask for less"
            );
            return Err(Failed::new(Code::ResourceExhausted, text));
        }
    }
    all.extend_from_slice(b"]");
    Ok(all.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failed::Violation;

    fn text(message: &'static str, violations: &[(&str, &str)]) -> String {
        let violation = |(field, description): &(&str, &str)| Violation {
            field: (*field).to_owned(),
            description: (*description).to_owned(),
        };
        let violations = violations.iter().map(violation).collect();
        Said::failed(&Failed { violations, ..Failed::new(Code::InvalidArgument, message) }).text
    }

    #[test]
    fn each_violation_is_said_once() {
        assert_eq!(text("no: a: is wrong", &[("a", "is wrong")]), "no: a: is wrong");
        assert_eq!(
            text("not today", &[("a[1]", "is wrong"), ("", "all")]),
            "not today\n- a[1]: is wrong\n- all"
        );
        let many: Vec<(String, &str)> =
            (0..MOST_LISTED + 5).map(|number| (format!("f{number}"), "x")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(field, text)| (&**field, *text)).collect();
        let said = text("no", &many);
        assert_eq!((said.lines().count(), said.lines().last()), (MOST_LISTED + 2, Some("- and 5 more")));
    }
}
