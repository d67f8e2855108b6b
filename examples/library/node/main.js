// N rows from a file through a model, and what it makes of them to another.
const fs = require('fs')
const path = require('path')

const [addon, rows, from, to] = process.argv.slice(2)
const bytes = fs.readFileSync(from)
const data = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length))
try {
  const output = require(path.resolve(addon)).run(data, Number(rows))
  fs.writeFileSync(to, Buffer.from(output.buffer))
} catch (error) {
  console.error(error.message)
  process.exit(1)
}
