// N rows from a file through a model, and what it makes of them to another.
package main

/*
#include <stdlib.h>
#include "model.h"

// Go passes no pointers to pointers of its own: they are gathered here.
static int64_t run(bucketize_model *model, const float *data, int64_t rows, float *output, int64_t bytes) {
	const void *inputs[] = {data};
	const int64_t shape[] = {rows, 784}, *shapes[] = {shape};
	void *outputs[] = {output};
	const int64_t lengths[] = {bytes};
	return bucketize_model_run(model, inputs, shapes, outputs, lengths);
}
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"unsafe"
)

const features, classes = 784, 10

func main() {
	rows, err := strconv.ParseInt(os.Args[1], 10, 64)
	check(err)
	in, err := os.Open(os.Args[2])
	check(err)
	data, output := make([]float32, (rows+1)*features), make([]float32, (rows+1)*classes) // never empty
	check(binary.Read(in, binary.LittleEndian, data[:rows*features]))

	var model *C.bucketize_model
	if C.bucketize_model_open(&model) != 0 {
		check(fmt.Errorf("no memory"))
	}
	defer C.bucketize_model_close(model)
	answer := C.run(model, (*C.float)(unsafe.Pointer(&data[0])), C.int64_t(rows),
		(*C.float)(unsafe.Pointer(&output[0])), C.int64_t(rows*classes*4))
	if answer != 0 {
		check(fmt.Errorf("%s", C.GoString(C.bucketize_model_error(model))))
	}
	out, err := os.Create(os.Args[3])
	check(err)
	check(binary.Write(out, binary.LittleEndian, output[:rows*classes]))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
