/* SPDX-License-Identifier: Apache-2.0
 *
 * assert: programmer errors. HR_ASSERT stays on in release builds; HR_DASSERT (kernels, hot loops)
 * only with HR_DEBUG. Operating errors are never asserted: they are returned. */
#ifndef HR_BASE_ASSERT_H
#define HR_BASE_ASSERT_H

_Noreturn void hr_assert_fail(const char *expr, const char *file, int line);

#define HR_ASSERT(x) ((x) ? (void)0 : hr_assert_fail(#x, __FILE__, __LINE__))
#ifdef HR_DEBUG
#define HR_DASSERT(x) HR_ASSERT(x)
#else
#define HR_DASSERT(x) ((void)0)
#endif

#endif
