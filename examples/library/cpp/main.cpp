// N rows from a file through a model, each thread with a context of its own.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "model.h"

constexpr int64_t features = 784, classes = 10;

class Model {
  public:
    Model() {
        bucketize_model *its = nullptr;
        if (bucketize_model_open(&its)) throw std::bad_alloc();
        context.reset(its);
    }

    void run(const float *data, int64_t rows, float *output) {
        const void *inputs[] = {data};
        const int64_t shape[] = {rows, features}, *shapes[] = {shape};
        void *outputs[] = {output};
        const int64_t bytes[] = {rows * classes * static_cast<int64_t>(sizeof(float))};
        if (bucketize_model_run(context.get(), inputs, shapes, outputs, bytes))
            throw std::runtime_error(bucketize_model_error(context.get()));
    }

  private:
    struct Close {
        void operator()(bucketize_model *its) const { bucketize_model_close(its); }
    };
    std::unique_ptr<bucketize_model, Close> context;
};

int main(int argc, char **argv) try {
    if (argc < 4) throw std::invalid_argument("main N in.bin out.bin [threads]");
    const int64_t rows = std::stoll(argv[1]);
    const int threads = argc > 4 ? std::stoi(argv[4]) : 1;
    std::vector<float> data(std::max<int64_t>(rows, 0) * features);
    std::ifstream(argv[2], std::ios::binary)
        .read(reinterpret_cast<char *>(data.data()), data.size() * sizeof(float));
    std::vector<std::vector<float>> outputs(threads, std::vector<float>(data.size() / features * classes));
    std::vector<std::string> errors(threads);
    std::vector<std::thread> team;
    for (int t = 0; t < threads; t++)
        team.emplace_back([&, t] {
            try {
                Model model;
                for (int again = 0; again < 20; again++)
                    for (int64_t some = rows; some > 0; some /= 2) model.run(data.data(), some, outputs[t].data());
                model.run(data.data(), rows, outputs[t].data());
            } catch (const std::exception &e) {
                errors[t] = e.what();
            }
        });
    for (auto &each : team) each.join();
    for (int t = 0; t < threads; t++) {
        if (!errors[t].empty()) throw std::runtime_error(errors[t]);
        if (outputs[t] != outputs[0]) throw std::runtime_error("threads differ");
    }
    std::ofstream(argv[3], std::ios::binary)
        .write(reinterpret_cast<const char *>(outputs[0].data()), outputs[0].size() * sizeof(float));
} catch (const std::exception &e) {
    std::cerr << e.what() << "\n";
    return 1;
}
