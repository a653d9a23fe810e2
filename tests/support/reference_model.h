// SPDX-License-Identifier: MIT
#pragma once

#include "engine/model/reference_model.h"
