/* `run(data, rows)` for Node: a Float32Array of rows, and a new one of what the model makes of them. */
#include <node_api.h>

#include "model.h"

enum { FEATURES = 784, CLASSES = 10 };

static napi_value run(napi_env env, napi_callback_info info) {
    size_t count = 2, length;
    napi_value given[2], buffer, result;
    napi_typedarray_type type;
    int64_t rows;
    void *data, *output;
    bucketize_model *model;

    napi_get_cb_info(env, info, &count, given, NULL, NULL);
    if (count < 2 || napi_get_value_int64(env, given[1], &rows) != napi_ok ||
        napi_get_typedarray_info(env, given[0], &type, &length, &data, NULL, NULL) != napi_ok ||
        type != napi_float32_array || rows < 0 || length < (size_t)rows * FEATURES) {
        napi_throw_type_error(env, NULL, "run(data: Float32Array of rows * 784, rows)");
        return NULL;
    }
    const size_t bytes = (size_t)rows * CLASSES * sizeof(float);
    if (napi_create_arraybuffer(env, bytes, &output, &buffer) != napi_ok) return NULL;
    if (bucketize_model_open(&model)) {
        napi_throw_error(env, NULL, "no memory");
        return NULL;
    }
    const void *inputs[] = {data};
    const int64_t shape[] = {rows, FEATURES}, *shapes[] = {shape}, lengths[] = {(int64_t)bytes};
    void *outputs[] = {output};
    if (bucketize_model_run(model, inputs, shapes, outputs, lengths)) {
        napi_throw_range_error(env, NULL, bucketize_model_error(model));
        bucketize_model_close(model);
        return NULL;
    }
    bucketize_model_close(model);
    napi_create_typedarray(env, napi_float32_array, (size_t)rows * CLASSES, buffer, 0, &result);
    return result;
}

NAPI_MODULE_INIT(/* env, exports */) {
    napi_value function;
    napi_create_function(env, "run", NAPI_AUTO_LENGTH, run, NULL, &function);
    napi_set_named_property(env, exports, "run", function);
    return exports;
}
