/* N rows from a file through a model, and what it makes of them to another. */
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

enum { FEATURES = 784, CLASSES = 10 };

static int fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4) return fail("usage", "main N in.bin out.bin");
    const int64_t rows = atoll(argv[1]);
    const size_t many = rows > 0 ? (size_t)rows : 0;
    float *data = calloc(many + 1, FEATURES * sizeof *data);
    float *output = calloc(many + 1, CLASSES * sizeof *output);
    FILE *in = fopen(argv[2], "rb"), *out = fopen(argv[3], "wb");
    if (!data || !output || !in || !out) return fail(argv[2], "cannot be read, or written to");
    if (fread(data, FEATURES * sizeof *data, many, in) != many) return fail(argv[2], "is too short");

    bucketize_model *model;
    if (bucketize_model_open(&model)) return fail("open", "no memory");
    const void *inputs[] = {data};
    const int64_t *shapes[] = {(int64_t[]){rows, FEATURES}};
    void *outputs[] = {output};
    const int64_t bytes[] = {(int64_t)(many * CLASSES * sizeof *output)};
    if (bucketize_model_run(model, inputs, shapes, outputs, bytes))
        return fail("run", bucketize_model_error(model));
    fwrite(output, CLASSES * sizeof *output, many, out);
    bucketize_model_close(model);
    fclose(in);
    fclose(out);
    free(data);
    free(output);
    return 0;
}
