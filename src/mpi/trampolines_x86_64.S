/* The trampolines for x86-64; see trampolines.h. Each exported name is one indirect jump; the table's first content leads to
   a stub that pushes the entry's number and goes to the common part, which saves every argument register, asks the resolver
   where to go, and goes there as if the program had. */
#include "mpi/function_table.h"

	.text
	.macro ENTRY symbol number
	.globl \symbol
	.type \symbol,@function
	.p2align 4
\symbol:
	.cfi_startproc
	endbr64
	jmp *(headroom_mpi_table+8*(\number))(%rip)
	.cfi_endproc
	.size \symbol,.-\symbol
	.p2align 3
first_\symbol:
	.cfi_startproc
	endbr64
	pushq $(\number)
	.cfi_adjust_cfa_offset 8
	jmp resolve_and_jump
	.cfi_endproc
	.pushsection .data.rel.local,"aw",@progbits
	.quad first_\symbol
	.popsection
	.endm

	.pushsection .data.rel.local,"aw",@progbits
	.p2align 6
	.globl headroom_mpi_table
	.hidden headroom_mpi_table
	.type headroom_mpi_table,@object
headroom_mpi_table:
	.popsection

#define X(index, name) ENTRY MPI_##name 2*index; ENTRY PMPI_##name 2*index+1;
HEADROOM_FUNCTIONS(X)

	.pushsection .data.rel.local,"aw",@progbits
	.size headroom_mpi_table,.-headroom_mpi_table
	.popsection

	.type resolve_and_jump,@function
	.p2align 4
resolve_and_jump:
	.cfi_startproc
	.cfi_def_cfa_offset 16			/* the entry's number and the return address */
	pushq %rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp,0
	movq %rsp,%rbp
	.cfi_def_cfa_register %rbp
	subq $(64+128+8),%rsp			/* 16-byte aligned: 24 bytes lie above */
	movq %rdi,0(%rsp)
	movq %rsi,8(%rsp)
	movq %rdx,16(%rsp)
	movq %rcx,24(%rsp)
	movq %r8,32(%rsp)
	movq %r9,40(%rsp)
	movq %rax,48(%rsp)
	movq %r10,56(%rsp)
	movaps %xmm0,64(%rsp)
	movaps %xmm1,80(%rsp)
	movaps %xmm2,96(%rsp)
	movaps %xmm3,112(%rsp)
	movaps %xmm4,128(%rsp)
	movaps %xmm5,144(%rsp)
	movaps %xmm6,160(%rsp)
	movaps %xmm7,176(%rsp)
	movq 8(%rbp),%rdi
	movq 16(%rbp),%rsi
	call headroom_mpi_resolve
	movq %rax,%r11
	movq 0(%rsp),%rdi
	movq 8(%rsp),%rsi
	movq 16(%rsp),%rdx
	movq 24(%rsp),%rcx
	movq 32(%rsp),%r8
	movq 40(%rsp),%r9
	movq 48(%rsp),%rax
	movq 56(%rsp),%r10
	movaps 64(%rsp),%xmm0
	movaps 80(%rsp),%xmm1
	movaps 96(%rsp),%xmm2
	movaps 112(%rsp),%xmm3
	movaps 128(%rsp),%xmm4
	movaps 144(%rsp),%xmm5
	movaps 160(%rsp),%xmm6
	movaps 176(%rsp),%xmm7
	leave
	.cfi_def_cfa %rsp,16
	addq $8,%rsp
	.cfi_adjust_cfa_offset -8
	jmp *%r11
	.cfi_endproc
	.size resolve_and_jump,.-resolve_and_jump

	.section .note.GNU-stack,"",@progbits
	.section .note.gnu.property,"a"		/* indirect branch tracking, shadow stack */
	.p2align 3
	.long 4,16,5
	.asciz "GNU"
	.long 0xc0000002,4,3,0
