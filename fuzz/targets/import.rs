//! An import of any text is an error or a model that comes back from its own export to the bit.
#![no_main]

use corgipile_core::model::Model;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(model) = Model::from_json(text) {
        let bytes = model.encode().expect("can be stored");
        assert_eq!(Model::decode(&bytes).expect("can be read").encode().expect("bytes"), bytes);
        let text = model.to_json(|| ()).expect("can be exported");
        assert_eq!(Model::from_json(&text).expect("can be imported again").encode().expect("bytes"), bytes);
    }
});
