//! Parts that several pages have: tables, tabs, links to the next page, empty states.

use super::html::{Html, encoded, html};
use super::values::{cut, grouped};
use crate::problem::Problem;

/// A column of a table.
pub(super) enum Column {
    Text(&'static str),
    /// Its values are numbers, with the last digits below each other.
    Number(&'static str),
    /// Its values are buttons, and its name is for screen readers.
    Actions(&'static str),
}

/// A tab, which selects a list.
pub(super) struct Tab {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) count: Option<i64>,
    /// Whether documents in it want somebody's attention.
    pub(super) is_bad: bool,
}

impl Column {
    fn parts(&self) -> (&'static str, &'static str) {
        match self {
            Column::Text(name) => (name, "text"),
            Column::Number(name) => (name, "number"),
            Column::Actions(name) => (name, "actions"),
        }
    }
}

/// Returns the row of something that cannot be shown, with the reason beside its name. The rest of the list is shown.
pub(super) fn failed_row(name: Html, problem: &Problem, columns: usize) -> Vec<Html> {
    let mut row = vec![name, text(cut(&problem.detail))];
    row.resize_with(columns, || text("–"));
    row
}

/// Returns a table, which scrolls if it is wider than the page.
pub(super) fn table(caption: &str, columns: &[Column], rows: &[Vec<Html>]) -> Html {
    let mut html = Html::new();
    html!(
        html,
        "<div class=\"scroll\" role=\"group\" aria-label=\"{}\" tabindex=\"0\"><table><caption>{}</caption><thead><tr>",
        caption,
        caption
    );
    for column in columns {
        let (name, class) = column.parts();
        let hides_name = matches!(column, Column::Actions(_));
        html!(html, "<th scope=\"col\" class=\"{}\">", class);
        html!(html, "<span class=\"{}\">{}</span></th>", if hides_name { "hidden" } else { "name" }, name);
    }
    html!(html, "</tr></thead><tbody>");
    for row in rows {
        html!(html, "<tr>");
        for (column, cell) in columns.iter().zip(row) {
            let (name, class) = column.parts();
            html!(html, "<td class=\"{}\" data-label=\"{}\">", class, name);
            html.push(cell);
            html!(html, "</td>");
        }
        html!(html, "</tr>");
    }
    html!(html, "</tbody></table></div>");
    html
}

/// Returns the tabs of a page, which lead to it with another value of a parameter of its query.
pub(super) fn tabs(label: &str, path: &str, parameter: &str, current: &str, tabs: &[Tab]) -> Html {
    let mut html = Html::new();
    html!(html, "<nav class=\"tabs\" aria-label=\"{}\"><ul>", label);
    for Tab { name, value, count, is_bad } in tabs {
        let href = if value.is_empty() { path.to_owned() } else { format!("{path}?{parameter}={}", encoded(value)) };
        let state = if value == current { "page" } else { "false" };
        html!(html, "<li><a href=\"{}\" aria-current=\"{}\">{}", href, state, name);
        if let Some(count) = count {
            let class = if *is_bad && *count > 0 { "count bad" } else { "count" };
            html!(html, " <span class=\"{}\">{}</span>", class, grouped(*count));
        }
        html!(html, "</a></li>");
    }
    html!(html, "</ul></nav>");
    html
}

/// Returns the links to the first and the next page of a list.
pub(super) fn pager(first: Option<&str>, next: Option<&str>) -> Html {
    let mut html = Html::new();
    if first.is_none() && next.is_none() {
        return html;
    }
    html!(html, "<nav class=\"pager\" aria-label=\"Pages of the list\">");
    if let Some(first) = first {
        html!(html, "<a class=\"button\" href=\"{}\">First page</a>", first);
    }
    if let Some(next) = next {
        html!(html, "<a class=\"button\" rel=\"next\" href=\"{}\">Next page</a>", next);
    }
    html!(html, "</nav>");
    html
}

/// Returns what stands in the place of a list without documents.
pub(super) fn empty(title: &str, text: &str) -> Html {
    let mut html = Html::new();
    html!(html, "<div class=\"empty\"><p class=\"title\">{}</p><p>{}</p></div>", title, text);
    html
}

/// Returns a message about the last write, if the query says that there was one.
pub(super) fn notice(said: Option<&str>, known: &[(&str, &str)]) -> Html {
    let mut html = Html::new();
    if let Some((_, text)) = known.iter().find(|(name, _)| Some(*name) == said) {
        html!(html, "<p class=\"notice\" role=\"status\" id=\"notice\" tabindex=\"-1\">{}</p>", text);
    }
    html
}

/// Returns a large figure with its name.
pub(super) fn tile(name: &str, value: &str, note: &str) -> Html {
    let mut html = Html::new();
    html!(html, "<div class=\"tile\"><dt>{}</dt><dd>{}</dd>", name, value);
    if !note.is_empty() {
        html!(html, "<dd class=\"note\">{}</dd>", note);
    }
    html!(html, "</div>");
    html
}

/// Returns a list of names and values.
pub(super) fn facts(facts: &[(&str, Html)]) -> Html {
    let mut html = Html::new();
    html!(html, "<dl class=\"facts\">");
    for (name, value) in facts {
        html!(html, "<div><dt>{}</dt><dd>", name);
        html.push(value);
        html!(html, "</dd></div>");
    }
    html!(html, "</dl>");
    html
}

/// Returns a text as a part.
pub(super) fn text(text: impl std::fmt::Display) -> Html {
    let mut html = Html::new();
    html!(html, "{}", text);
    html
}

/// Returns a link.
pub(super) fn link(path: &str, name: impl std::fmt::Display) -> Html {
    let mut html = Html::new();
    html!(html, "<a href=\"{}\">{}</a>", path, name);
    html
}

/// Returns a state as a mark, whose color is not its only sign.
pub(super) fn mark(state: &str) -> Html {
    let class = match state.to_ascii_uppercase().as_str() {
        "DONE" | "COMMITTED" | "VALID" | "RUNNING" => "good",
        "FAILED" | "ABANDONED" | "PAUSED" => "bad",
        "PROCESSING" | "PENDING" | "APPLIED" | "CANCELING" | "UNCOMMITTED" | "OPEN" => "busy",
        _ => "plain",
    };
    let mut html = Html::new();
    html!(html, "<span class=\"mark {}\">{}</span>", class, state);
    html
}

/// Returns the beginning of a region that is kept up to date, and its heading.
pub(super) fn open_region(html: &mut Html, id: &str, heading: &str) {
    html!(
        html,
        "<section id=\"{}\" data-region aria-labelledby=\"{}-title\"><h2 id=\"{}-title\">{}</h2>",
        id,
        id,
        id,
        heading
    );
}

/// Writes the end of a region.
pub(super) fn close_region(html: &mut Html) {
    html!(html, "</section>\n");
}
