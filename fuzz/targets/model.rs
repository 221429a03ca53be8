//! A stored model of any bytes is an error or a model that can be used, written and exported. The bytes are taken as they
//! are, and as header and weights whose lengths and checksum are right: no luck finds those.
#![no_main]

use corgipile_core::model::{FORMAT, Model};
use corgipile_core::tuples::Features;
use libfuzzer_sys::fuzz_target;

/// Uses a model in every way.
fn exercise(model: &Model) {
    let bytes = model.encode().expect("a model that was read can be written");
    let again = Model::decode(&bytes).expect("and read");
    assert_eq!(again.encode().expect("bytes"), bytes);
    assert_eq!(again.weights, model.weights);
    let n = model.header.n_features;
    let mut scores = Vec::new();
    let (indices, values) = ([0u32, 7, u32::MAX], [1.5f32, f32::MAX, -0.0]);
    for features in [Features::Dense(&vec![0.5; n]), Features::Sparse(&indices, &values)] {
        model.scores(features, &mut scores).expect("as many values as it has features");
        assert_eq!(scores.len(), model.outputs());
        let class = model.class_of(&scores);
        assert!(class.is_none_or(|class| class < model.header.classes.len()));
        model.score_of(&scores);
        for class in 0..model.header.classes.len() {
            if let Some(p) = model.probability(&scores, class).filter(|p| !p.is_nan()) {
                assert!((0.0..=1.0).contains(&p));
            }
        }
    }
    assert!(model.scores(Features::Dense(&vec![0.5; n + 1]), &mut scores).is_err());
    for feature in [0, n.saturating_sub(1), n] {
        model.header.feature_name(feature);
    }
    model.header.prediction_type();
    // Not every number of a stored header is one that SQL can hold, so an import may refuse.
    let text = model.to_json(|| ()).expect("small enough");
    if let Ok(back) = Model::from_json(&text) {
        assert_eq!(back.encode().expect("bytes"), bytes);
    }
}

/// The input's bytes up to the first 0 as a header, the others as weights, with what belongs around them.
fn put_together(input: &[u8]) -> Vec<u8> {
    let header = input.split(|byte| *byte == 0).next().unwrap_or_default();
    let weights = input.get(header.len() + 1..).unwrap_or_default();
    let count = weights.len() / 4;
    let mut bytes = b"CGPM".to_vec();
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(count as u64).to_le_bytes());
    bytes.extend_from_slice(header);
    bytes.extend_from_slice(&weights[..count * 4]);
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

fuzz_target!(|input: &[u8]| {
    for bytes in [input.to_vec(), put_together(input)] {
        if let Ok(model) = Model::decode(&bytes) {
            exercise(&model);
        }
    }
});
