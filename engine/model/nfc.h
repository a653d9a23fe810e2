// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace kvlab {

// This build can normalise: it found libutf8proc.
bool canNormalise();

// Unicode's Normalisation Form C (Unicode Standard Annex #15): canonically equal texts become the
// same one, with composed characters. Bytes that are no UTF-8 stay where they are and part the
// text. Time n log n, whatever the text. Where canNormalise() is false: the text as it is.
std::string toNfc(std::string_view text);

}  // namespace kvlab
