// Loads a SavedModel as TensorFlow Serving does, in C++ and without Python, and answers one line of text after another.
//
//   serve_once FOLDER LIBRARY... < requests > answers
//
// The libraries hold operations that TensorFlow itself lacks. A request is a line "SIGNATURE<TAB>NAME=TYPE:VALUE<TAB>…"
// with one text, int or float for each input; texts (type "text") and serialized protos (type "hex") have a batch axis,
// numbers are scalars. An answer is one line for each output, "NAME<TAB>DTYPE<TAB>VALUES", then an empty line; values are
// separated by commas, and texts in hexadecimal digits.

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tensorflow/c/c_api.h"
#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session_options.h"

using tensorflow::Tensor;

namespace {

std::vector<std::string> Split(const std::string& line, char mark) {
  std::vector<std::string> parts;
  std::istringstream stream(line);
  for (std::string part; std::getline(stream, part, mark);) parts.push_back(part);
  return parts;
}

std::string FromHex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string ToHex(const std::string& bytes) {
  static const char* digits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text.push_back(digits[byte >> 4]);
    text.push_back(digits[byte & 15]);
  }
  return text;
}

Tensor ToTensor(const std::string& type, const std::string& value) {
  if (type == "int") return Tensor(static_cast<tensorflow::int32>(std::stoi(value)));
  if (type == "float") return Tensor(std::stof(value));
  Tensor texts(tensorflow::DT_STRING, tensorflow::TensorShape({1}));
  texts.vec<tensorflow::tstring>()(0) = type == "hex" ? FromHex(value) : value;
  return texts;
}

void Print(const std::string& name, const Tensor& tensor) {
  std::cout << name << '\t' << tensorflow::DataTypeString(tensor.dtype()) << '\t';
  for (int64_t i = 0; i < tensor.NumElements(); ++i) {
    if (i > 0) std::cout << ',';
    if (tensor.dtype() == tensorflow::DT_STRING) {
      std::cout << ToHex(std::string(tensor.flat<tensorflow::tstring>()(i)));
    } else if (tensor.dtype() == tensorflow::DT_FLOAT) {
      std::cout << tensor.flat<float>()(i);
    } else {
      std::cout << tensor.flat<tensorflow::int32>()(i);
    }
  }
  std::cout << '\n';
}

int Fail(const std::string& what, const std::string& why) {
  std::cerr << what << ": " << why << std::endl;
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    TF_Status* status = TF_NewStatus();
    TF_LoadLibrary(argv[i], status);
    if (TF_GetCode(status) != TF_OK) return Fail(argv[i], TF_Message(status));
    TF_DeleteStatus(status);
  }
  tensorflow::SavedModelBundle bundle;
  const auto loaded = tensorflow::LoadSavedModel(tensorflow::SessionOptions(), tensorflow::RunOptions(), argv[1],
                                                 {"serve"}, &bundle);
  if (!loaded.ok()) return Fail(argv[1], loaded.ToString());
  for (std::string line; std::getline(std::cin, line);) {
    const auto parts = Split(line, '\t');
    const auto& signature = bundle.meta_graph_def.signature_def().at(parts[0]);
    std::vector<std::pair<std::string, Tensor>> feed;
    for (size_t i = 1; i < parts.size(); ++i) {
      const size_t equals = parts[i].find('='), colon = parts[i].find(':');
      const auto& input = signature.inputs().at(parts[i].substr(0, equals));
      feed.emplace_back(input.name(),
                        ToTensor(parts[i].substr(equals + 1, colon - equals - 1), parts[i].substr(colon + 1)));
    }
    std::vector<std::string> names, fetches;
    for (const auto& [name, output] : signature.outputs()) {
      names.push_back(name);
      fetches.push_back(output.name());
    }
    std::vector<Tensor> found;
    const auto ran = bundle.session->Run(feed, fetches, {}, &found);
    if (!ran.ok()) return Fail(parts[0], ran.ToString());
    for (size_t i = 0; i < names.size(); ++i) Print(names[i], found[i]);
    std::cout << '\n';
  }
  return 0;
}
