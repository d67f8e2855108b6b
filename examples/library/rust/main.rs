//! N rows from a file through a model, and what it makes of them to another.
use std::ffi::{c_char, c_void, CStr};
use std::{env, fs, process, ptr};

const FEATURES: usize = 784;
const CLASSES: usize = 10;

#[repr(C)]
struct Context {
    _private: [u8; 0],
}

extern "C" {
    fn bucketize_model_open(context: *mut *mut Context) -> i64;
    fn bucketize_model_close(context: *mut Context);
    fn bucketize_model_error(context: *const Context) -> *const c_char;
    fn bucketize_model_run(
        context: *mut Context,
        inputs: *const *const c_void,
        shapes: *const *const i64,
        outputs: *const *mut c_void,
        output_bytes: *const i64,
    ) -> i64;
}

/// What calls need of their own: it may move to another thread, and is used by one at a time.
struct Model(*mut Context);

unsafe impl Send for Model {}

impl Model {
    fn open() -> Model {
        let mut context = ptr::null_mut();
        let answer = unsafe { bucketize_model_open(&mut context) };
        assert_eq!(answer, 0, "no memory");
        Model(context)
    }

    fn run(&mut self, data: &[f32], rows: i64) -> Result<Vec<f32>, String> {
        let mut output = vec![0f32; rows.max(0) as usize * CLASSES];
        let shape = [rows, FEATURES as i64];
        let answer = unsafe {
            bucketize_model_run(
                self.0,
                [data.as_ptr().cast()].as_ptr(),
                [shape.as_ptr()].as_ptr(),
                [output.as_mut_ptr().cast()].as_ptr(),
                [(output.len() * size_of::<f32>()) as i64].as_ptr(),
            )
        };
        if answer != 0 {
            let error = unsafe { CStr::from_ptr(bucketize_model_error(self.0)) };
            return Err(error.to_string_lossy().into_owned());
        }
        Ok(output)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { bucketize_model_close(self.0) }
    }
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let rows: i64 = arguments[1].parse().expect("N");
    let bytes = fs::read(&arguments[2]).expect("in.bin");
    let data: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    match Model::open().run(&data, rows) {
        Ok(output) => {
            let bytes: Vec<u8> = output.iter().flat_map(|x| x.to_le_bytes()).collect();
            fs::write(&arguments[3], bytes).expect("out.bin");
        }
        Err(error) => {
            eprintln!("{error}");
            process::exit(1);
        }
    }
}
