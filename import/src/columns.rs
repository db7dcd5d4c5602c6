//! What the columns of a text edge list hold, by their order and by the names in a header.

use std::fmt;
use std::str::FromStr;

use cohop::{Error, Result};

use crate::text::shown;

/// What a column of an edge list holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Where an edge begins.
    Source,
    /// Where an edge ends.
    Destination,
    /// A finite number.
    Weight,
    /// A relation: 0 to 65535, or a name.
    Type,
    /// When the edge came to be: a finite number.
    Time,
    /// Not read.
    Skip,
}

/// What is read of a column, its name for `--columns`, and those that it has in headers: in small letters, without
/// anything between words, and without a last `id`, `ids` or `nodeid`.
const COLUMNS: [(Column, &str, &[&str]); 5] = [
    (Column::Source, "source", &["source", "src", "from", "u", "node1", "citing"]),
    (
        Column::Destination,
        "destination",
        &["destination", "dst", "dest", "target", "to", "v", "node2", "cited"],
    ),
    (Column::Weight, "weight", &["weight", "weights", "edgeweight", "w"]),
    (Column::Type, "type", &["type", "types", "edgetype", "etype", "relation", "rel", "predicate"]),
    (Column::Time, "time", &["time", "times", "timestamp", "edgetime", "datetime", "date"]),
];

/// Names of ends that do not tell which: an edge goes from its tail to its head, a triple from its head to its tail.
const EITHER_END: [&str; 2] = ["head", "tail"];

impl FromStr for Column {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = COLUMNS.iter().map(|&(column, own, _)| (column, own)).chain([(Column::Skip, "-")]);
        let column = known.into_iter().find(|&(_, own)| own == name).map(|(column, _)| column);
        column.ok_or_else(|| {
            Error::invalid("--columns", shown(name), "source, destination, weight, type, time or -")
        })
    }
}

/// As `--columns` takes it.
impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(COLUMNS.iter().find(|(column, ..)| column == self).map_or("-", |&(_, own, _)| own))
    }
}

/// A list of columns, as `--columns` takes it.
pub(crate) fn list(columns: &[Column]) -> String {
    columns.iter().map(Column::to_string).collect::<Vec<_>>().join(",")
}

/// `Ok` if the columns are those of edges.
pub(crate) fn check(columns: &[Column]) -> Result<()> {
    let count = |column| columns.iter().filter(|&&c| c == column).count();
    let fail = |expected: &str| Err(Error::invalid("--columns", list(columns), expected));
    if [Column::Source, Column::Destination].iter().any(|&end| count(end) != 1) {
        return fail("one source and one destination");
    }
    if COLUMNS.iter().any(|&(column, ..)| count(column) > 1) {
        return fail("each of weight, type and time once at most, and - for what is not read");
    }
    Ok(())
}

/// A name without what its writers differ in.
fn plain(name: &str) -> String {
    let letters =
        name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
    let ends = ["nodeids", "nodeid", "ids", "id"];
    let stem = ends.iter().find_map(|end| letters.strip_suffix(end)).filter(|stem| !stem.is_empty());
    stem.unwrap_or(&letters).to_owned()
}

/// What a header's name says that its column holds; `None`: nothing that is known here.
fn meaning(name: &str) -> Option<Column> {
    let name = plain(name);
    COLUMNS.iter().find(|(.., names)| names.contains(&&*name)).map(|&(column, ..)| column)
}

/// Whether both are names of columns, and one is that of an end: so the fields of a header, where ids may be any text.
pub(crate) fn name_columns(fields: [&str; 2]) -> bool {
    let is_either = |name: &str| EITHER_END.contains(&&*plain(name));
    let is_end =
        |name: &str| is_either(name) || matches!(meaning(name), Some(Column::Source | Column::Destination));
    fields.iter().all(|name| is_either(name) || meaning(name).is_some()) && fields.into_iter().any(is_end)
}

/// What is wrong with `columns` where a header has these `names`: a text, if one of them says that its column holds
/// something else. A column that is not read may have any name.
pub(crate) fn contradiction(columns: &[Column], names: &[&str]) -> Option<String> {
    let mut pairs = columns.iter().zip(names).filter(|(column, _)| **column != Column::Skip);
    let (column, name, says) = pairs
        .find_map(|(&column, &name)| meaning(name).filter(|&m| m != column).map(|m| (column, name, m)))?;
    let of_header: Vec<Column> = names.iter().map(|name| meaning(name).unwrap_or(Column::Skip)).collect();
    let instead = match check(&of_header) {
        Ok(()) => {
            let last = of_header.iter().rposition(|&c| c != Column::Skip).map_or(0, |last| last + 1);
            format!("--columns {}", list(&of_header[..last]))
        }
        Err(_) => "--columns with what they hold".to_owned(),
    };
    let names = names.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ");
    Some(format!(
        "names columns {names}, but {} is taken for the {column}, not the {says} (--columns {}): expected {instead}, \
         or a file without this line if it is wrong",
        shown(name),
        list(columns)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(text: &str) -> Vec<Column> {
        text.split(',').map(|name| name.parse().unwrap()).collect()
    }

    fn found(taken: &str, header: &str) -> Option<String> {
        contradiction(&columns(taken), &header.split(',').collect::<Vec<_>>())
    }

    #[test]
    fn columns_are_shown_as_they_are_written() {
        for text in ["source,destination", "-,type,destination,time,source,weight"] {
            assert_eq!(list(&columns(text)), text);
        }
        let error = "sources".parse::<Column>().unwrap_err().to_string();
        assert_eq!(error, "--columns is \"sources\": expected source, destination, weight, type, time or -");
        let error = check(&columns("source,-,weight")).unwrap_err().to_string();
        assert_eq!(error, "--columns is source,-,weight: expected one source and one destination");
        let error = check(&columns("source,destination,time,time")).unwrap_err().to_string();
        assert!(error.starts_with("--columns is source,destination,time,time: expected each of"), "{error}");
    }

    #[test]
    fn headers_that_agree_or_say_nothing_pass() {
        let all = "source,destination,weight,type,time";
        for (taken, header) in [
            ("source,destination", "source,target"),
            ("source,destination", "Src,Dst"),
            ("source,destination", "from_id,To-ID"),
            ("source,destination", "FromNodeId,ToNodeId"),
            ("source,destination", "u,v,weight"),
            ("source,destination", "node1,node2"),
            ("source,destination", "head,tail"),
            ("source,destination", "tail,head"),
            ("source,destination", "paper,cites"),
            ("source,destination", "id"),
            ("destination,source", "target,source"),
            ("-,source,destination", "weight,from,to"),
            (all, "citing,cited,w,relation,timestamp"),
            (all, "a,b,c,d,e"),
        ] {
            assert_eq!(found(taken, header), None, "{taken} {header}");
        }
    }

    #[test]
    fn headers_that_say_otherwise_are_told_with_what_to_say_instead() {
        for (taken, header, instead) in [
            ("source,destination", "target,source", "--columns destination,source,"),
            ("source,destination", "DST,SRC", "--columns destination,source,"),
            ("source,destination", "to,from", "--columns destination,source,"),
            ("source,destination", "destination,x", "--columns with what they hold,"),
            ("source,destination", "x,source", "--columns with what they hold,"),
            ("source,destination", ",source,target", "--columns -,source,destination,"),
            ("source,destination", "source,weight,target", "--columns source,weight,destination,"),
            ("source,destination,type", "u,v,weight,note", "--columns source,destination,weight,"),
            ("source,destination,weight", "u,v,time", "--columns source,destination,time,"),
            (
                "source,destination,weight,time",
                "u,v,time,weight",
                "--columns source,destination,time,weight,",
            ),
            ("source,type,destination", "from,to,rel", "--columns source,destination,type,"),
        ] {
            let problem = found(taken, header).unwrap();
            assert!(problem.contains(&format!("expected {instead}")), "{taken} {header}: {problem}");
            assert!(problem.contains(&format!("(--columns {taken})")), "{problem}");
        }
        let expected = "names columns \"target\", \"source\", but \"target\" is taken for the source, not the \
                        destination (--columns source,destination): expected --columns destination,source, or a file \
                        without this line if it is wrong";
        assert_eq!(found("source,destination", "target,source").unwrap(), expected);
    }

    #[test]
    fn names_of_ends_tell_a_header_from_an_edge() {
        for fields in [["source", "target"], ["to", "from"], ["tail", "head"], ["from", "weight"]] {
            assert!(name_columns(fields), "{fields:?}");
        }
        for fields in [["ann", "bob"], ["from", "bob"], ["weight", "time"], ["", "source"], ["id", "id"]] {
            assert!(!name_columns(fields), "{fields:?}");
        }
    }
}
