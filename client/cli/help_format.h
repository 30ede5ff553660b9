// How --help is laid out: CLI11's way, with lines that end where the terminal does.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace feedwater::cli {

class HelpFormat final : public CLI::Formatter {
 public:
  HelpFormat() { column_width(kNameColumns); }

 protected:
  std::string make_description(const CLI::App* app) const override;
  // Lines that begin with a blank are examples, and stay as they are.
  std::string make_footer(const CLI::App* app) const override;
  std::string make_subcommand(const CLI::App* sub) const override;
  std::string make_option_desc(const CLI::Option* option) const override;

 private:
  static constexpr size_t kNameColumns = 30;
};

}  // namespace feedwater::cli
