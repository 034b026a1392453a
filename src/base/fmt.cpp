// What fmt's headers only declare, compiled once: Debian's libfmt is a library to be loaded at run time, which
// libgrus.so doesn't ask of every program, and with fmt's header-only form each file would take two seconds more to
// compile.
#include <fmt/format-inl.h>

template auto fmt::detail::thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto fmt::detail::decimal_point_impl(locale_ref) -> char;
template auto fmt::detail::dragonbox::to_decimal(float x) noexcept -> decimal_fp<float>;
template auto fmt::detail::dragonbox::to_decimal(double x) noexcept -> decimal_fp<double>;
